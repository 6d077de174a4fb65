"""One file, several runs: rows are cut where a run begins anew, and a resumed run is made whole.

A name that is logged again at a step where it was already is the mark of both. If the step is back at the beginning
another run was appended to the file; if it is later, the run was resumed from a checkpoint, and the rows of the earlier
attempt from there on are dropped. Rows that merely come late, or of which a step has several, have names of their own
and are merged.
"""

import math
from collections.abc import Sequence

import msgspec

from springtide.diagnosis.log import Log, Note, Row

BOOKKEEPING = frozenset(
    ("epoch", "step", "global_step", "time", "timestamp", "num_tokens", "num_input_tokens_seen", "total_flos")
)
"""Names that every row has, whatever it reports; those that begin with an underscore are W&B's own."""

LOOK_BACK = 32
"""Rows in which a name is looked for. A row that comes later than that is taken for a new one."""

MOST = 100
"""Runs that one file may hold. Beyond that steps say nothing of the order."""


def split(log: Log) -> list[Log]:
    """One log per run, in the order of the file."""
    attempts = _attempts(_numbered(log.rows, log.window))
    if attempts is None:
        note = Note(text="Steps fall back so often that they say nothing; rows are counted in their order.")
        rows = tuple(msgspec.structs.replace(row, step=place) for place, row in enumerate(log.rows))
        return [msgspec.structs.replace(log, rows=rows, window=1, notes=(*log.notes, note))]
    if len(attempts) <= 1:
        rows, notes = attempts[0].found() if attempts else ((), ())
        return [msgspec.structs.replace(log, rows=rows, notes=(*log.notes, *notes))]
    runs = []
    for number, attempt in enumerate(attempts, 1):
        rows, notes = attempt.found()
        about = Note(text=f"The file holds {len(attempts)} runs one after the other; this is number {number}.")
        error = log.error if number == len(attempts) else None
        runs.append(msgspec.structs.replace(log, rows=rows, notes=(*log.notes, about, *notes), error=error))
    return runs


def _numbered(rows: Sequence[Row], window: int) -> list[Row]:
    """Rows without a step have that of the row before them, or are counted if none has one."""
    if any(row.step is not None for row in rows):
        step, found = 0, []
        for row in rows:
            if row.step is not None:
                step = row.step
                found.append(row)
            else:
                found.append(msgspec.structs.replace(row, step=step))
        return found
    return _counted(rows, window)


def _counted(rows: Sequence[Row], window: int) -> list[Row]:
    """Steps by counting. Where the epoch falls back the count does so as well, to the row that was at that epoch."""
    found: list[Row] = []
    count, highest, previous = 0, 0.0, None
    for row in rows:
        if row.values == previous:
            continue
        previous = row.values
        epoch = row.values.get("epoch", highest)
        if epoch < highest:
            count = max(round(epoch / highest * count) - 1, 0)
        highest = epoch if math.isfinite(epoch) else highest
        if count == 0 or not (row.kind == "eval" or _is_summary(row)):
            count += 1
        found.append(msgspec.structs.replace(row, step=count * window))
    return found


def _is_summary(row: Row) -> bool:
    return "train_runtime" in row.values


def _attempts(rows: Sequence[Row]) -> "list[_Run] | None":
    """None if there are more than can be."""
    runs: list[_Run] = []
    many = _several_per_step(rows)
    for row in rows:
        if not runs or runs[-1].begins_anew(row, many):
            if len(runs) == MOST:
                return None
            runs.append(_Run())
        runs[-1].take(row)
    return runs


def _several_per_step(rows: Sequence[Row]) -> bool:
    """Whether the writer gives a step several rows of one kind as a habit: then that is no restart."""
    repeats, previous = 0, None
    steps = set()
    for row in rows:
        steps.add(row.step)
        if previous is not None and previous.step == row.step and _clash(previous, row):
            repeats += 1
        previous = row
    return repeats >= 0.5 * len(steps) and repeats > 0 and len(steps) > 4


def _clash(early: Row, late: Row) -> bool:
    """Both report one name, and not the same of it throughout."""
    shared = [name for name in early.values.keys() & late.values.keys() if not _bookkeeping(name)]
    return any(not _same(early.values[name], late.values[name]) for name in shared) or (
        bool(shared) and early.step != late.step
    )


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)


def _bookkeeping(name: str) -> bool:
    return name in BOOKKEEPING or name.startswith("_")


class _Run:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.first = self.second = self.last = 0
        self.dropped: list[tuple[int, int]] = []

    def begins_anew(self, row: Row, many: bool) -> bool:
        """The step is back where this run began, and what it reports was reported there."""
        step = _step(row)
        if step > self.last or step > max(self.second, self.first) or not self._repeats(row):
            return False
        if step == self.last:
            return self.last == self.first and not many
        return True

    def take(self, row: Row) -> None:
        step = _step(row)
        if not self.rows:
            self.first = self.second = self.last = step
        elif step < self.last:
            self._take_late(row, step)
        elif self.second == self.first:
            self.second = step
        self.rows.append(row)
        self.last = max(step, self.last)

    def _take_late(self, row: Row, step: int) -> None:
        """A row that comes late is kept; one that repeats takes the place of all from its step on."""
        if not self._repeats(row):
            return
        count = before = 0
        for each in reversed(self.rows):
            before = 0 if _step(each) >= step else before + 1
            if before > LOOK_BACK:
                break
            count += 1
        tail = self.rows[len(self.rows) - count :]
        kept = [each for each in tail if _step(each) < step]
        del self.rows[len(self.rows) - count :]
        self.rows += kept
        self.dropped.append((step, count - len(kept)))
        self.last = step

    def _repeats(self, row: Row) -> bool:
        step = _step(row)
        return any(_step(each) >= step and _clash(each, row) for each in reversed(self.rows[-LOOK_BACK:]))

    def found(self) -> tuple[tuple[Row, ...], tuple[Note, ...]]:
        return tuple(self.rows), tuple(self.notes())

    def notes(self) -> list[Note]:
        found = [
            Note(text=f"The run was resumed at step {step}: {count} rows that it had from there on do not count.")
            for step, count in self.dropped[:5]
        ]
        if len(self.dropped) > 5:
            found.append(Note(text=f"It was resumed {len(self.dropped) - 5} more times."))
        return found


def _step(row: Row) -> int:
    assert row.step is not None, "rows are numbered before they are cut"
    return row.step
