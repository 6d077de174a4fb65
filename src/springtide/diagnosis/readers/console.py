"""What a run printed: dicts of TRL and Unsloth, step lines of verl, between progress bars, warnings and samples.

One pass over the bytes; a line is looked at closely only if it can hold numbers. Rows without a step get it from the
progress bar. A traceback after which no row came is why the run ended.
"""

import re
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from springtide.diagnosis.log import Log, Note, Row
from springtide.diagnosis.readers.bars import Bars, BarWatch, steps_from_bars
from springtide.diagnosis.readers.console_settings import ConsoleSettings
from springtide.diagnosis.readers.console_values import dicts, step_line
from springtide.diagnosis.readers.grouping import without_rounded_away
from springtide.diagnosis.readers.head import head, is_text
from springtide.diagnosis.readers.lines import lines
from springtide.diagnosis.readers.pair_line import may_be_pairs, pair_line
from springtide.diagnosis.readers.trouble import TRACEBACK, Trouble, bare, may_be_trouble, saved
from springtide.diagnosis.readers.values import step_of

SUFFIXES = (".log", ".txt", ".out", ".err", ".stdout", ".stderr", "")
LINE_OF_NUMBERS = re.compile(rb"""\{['"][\w/@.-]+['"]: *['"]?[-\d.nN]|(?<![\w/])step:\d+ - """)
EVALUATION = "eval_"
FIRST = 3
"""Names of a row of which one says that it is of an evaluation: they come first, beside the epoch."""


def sniff(path: Path) -> bool:
    """Text with lines of numbers near its beginning, or a name that says log and no other reader's head."""
    if not path.is_file() or path.name.startswith("."):
        return False
    data = head(path)
    if not data or not is_text(data) or path.suffix.lower() not in SUFFIXES:
        return False
    return bool(LINE_OF_NUMBERS.search(data)) or path.suffix.lower() in (".log", ".out", ".err") or _is_console(data)


def _is_console(data: bytes) -> bool:
    return TRACEBACK in data or b"it/s]" in data or b"s/it]" in data


def read(path: Path) -> list[Log]:
    scan = _Scan()
    for line in lines(path):
        scan.take(line)
    if not scan.rows():
        scan.stepped = [read for line in lines(path) if may_be_pairs(line) and (read := pair_line(bare(line)))]
    return [scan.log(path)]


SMALL = re.compile(r"/lr$|(?:^|[/_])kl(?:_loss|_penalty)?$|probs_diff_mean$")
ROUNDED_ROWS = 50
"""Rows by which it shows that all is rounded."""


class _Scan:
    def __init__(self) -> None:
        self.plain: list[tuple[int | None, dict[str, float], Bars]] = []
        self.stepped: list[tuple[int, dict[str, float]]] = []
        self.trouble = Trouble()
        self.settings = ConsoleSettings()
        self.checkpoints: set[int] = set()
        self.bars = BarWatch()
        self.number = 0

    def take(self, line: bytes) -> None:
        self.number += 1
        if b"%|" in line:
            self.bars.take(line)
        if b"step:" in line and (read := step_line(bare(line))):
            self.stepped.append(read)
            return
        if b"{" in line and b"}" in line and self._take_dicts(line):
            return
        if self.trouble.watching or may_be_trouble(line):
            self.trouble.take(line, self.number, self.rows())
        elif b"av" in line and (step := saved(line)) is not None:
            self.checkpoints.add(step)
        if not self.rows():
            self.settings.take(line)

    def _take_dicts(self, line: bytes) -> bool:
        before = len(self.plain)
        for step, values in dicts(line):
            self.plain.append((step, values, self.bars.now))
        return len(self.plain) > before

    def rows(self) -> int:
        return max(len(self.plain), len(self.stepped))

    def log(self, path: Path) -> Log:
        rows = self._stepped_rows() if len(self.stepped) >= len(self.plain) else self._plain_rows()
        return Log(
            source=path,
            container="console",
            rows=rows,
            settings=self.settings.found(),
            window=self._window(rows),
            notes=tuple(self._notes(rows)),
            error=self.trouble.after(self.rows()),
            checkpoints=tuple(sorted(self.checkpoints)),
        )

    def _stepped_rows(self) -> tuple[Row, ...]:
        """verl printed three decimals of everything until 2025, which a usual learning rate is below."""
        rows = tuple(Row(values=values, step=step) for step, values in self.stepped)
        shown = [value for row in rows[:ROUNDED_ROWS] for value in row.values.values() if abs(value) < 1e6]
        rounded = all(abs(1000 * value - round(1000 * value)) < 1e-6 for value in shown)
        return without_rounded_away(rows, SMALL) if rounded else rows

    def _plain_rows(self) -> tuple[Row, ...]:
        steps = [step if step is not None else _own_step(values) for step, values, _ in self.plain]
        if None in steps:
            steps = steps_from_bars([bars for _, _, bars in self.plain])
        return tuple(
            Row(values=values, step=step, kind="eval" if _held_out(values) else "train")
            for step, (_, values, _) in zip(steps, self.plain, strict=True)
        )

    def _window(self, rows: tuple[Row, ...]) -> int:
        """Train steps from one row to the next, the usual number."""
        if rows and rows[0].step is None:
            return self.bars.spacing(sum(_is_periodic(row) for row in rows))
        steps: list[Any] = [row.step for row in rows if row.step is not None and _is_periodic(row)]
        gaps = sorted(late - early for early, late in pairwise(steps) if late > early)
        return gaps[len(gaps) // 2] if gaps else 1

    def _notes(self, rows: tuple[Row, ...]) -> list[Note]:
        notes = [
            Note(text=f"An error in the middle, after which the run went on: {text}", line=line)
            for at, line, text in self.trouble.errors[:3]
            if at < self.rows()
        ]
        if rows and rows[0].step is None:
            apart = self._window(rows)
            notes.append(
                Note(text=f"Rows carry no step: they are counted, {apart} train steps each by the progress bar.")
            )
        if not rows:
            notes.append(Note(text="There is no line with numbers of training in it."))
        if self.trouble.after(self.rows()) and (place := self.bars.place()):
            notes.append(Note(text=f"The progress bar stood at {place[0]} of {place[1]} when the run ended."))
        return notes


def _own_step(values: dict[str, float]) -> int | None:
    return next((step_of(values[name]) for name in ("step", "global_step") if name in values), None)


def _held_out(values: dict[str, float]) -> bool:
    return any(name.startswith(EVALUATION) for name in islice(values, FIRST))


def _is_periodic(row: Row) -> bool:
    """Logged every so many steps: neither an evaluation nor the summary at the end."""
    return row.kind == "train" and "train_runtime" not in row.values
