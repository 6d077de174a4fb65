"""Logs that belong together, put together before anything is made of them.

Some loggers scatter a run. Event files of one folder are one run that was started again; prime-rl's trainer and
orchestrator are two runs, of the same steps; slime counts train steps and rollouts each on an axis of its own. What is
not known to belong together stays apart.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from springtide.diagnosis.identify import keys_of
from springtide.diagnosis.log import Log, Row, RowKind

PARTS = ("tensorboard",)
"""Containers of which the files of one folder are one run."""

TRAINER = ("optim/lr", "mismatch_kl/all/mean", "mismatch_kl/mean", "optim/grad_norm")
ORCHESTRATOR = re.compile(r"^(?:reward/(?:all/)?mean|train/agg/|train/.+/reward/mean|solve_none/|batch/solve_none)")
ROLE = re.compile(r"(?i)[-_.]?(?:trainer|orchestrator|train|orch)(?=[-_.]|$)|\.(?:log|stdout|out|txt|jsonl)$")
SLIME = ("train/pg_loss", "train/train_rollout_logprob_abs_diff", "train/ppo_kl", "train/lr-pg_0")


def gather(logs: Sequence[Log]) -> list[Log]:
    return [_on_one_axis(log) for log in _paired(_whole(logs))]


def _keys(log: Log) -> set[str]:
    return {key for row in log.rows for key in row.values}


# -- several files of one run


def _whole(logs: Sequence[Log]) -> list[Log]:
    """In the order of their first times."""
    parts: dict[object, list[Log]] = defaultdict(list)
    for index, log in enumerate(logs):
        parts[log.source.parent if log.container in PARTS and log.source.is_file() else index].append(log)
    return [each[0] if len(each) == 1 else _merged(each) for each in parts.values()]


def _merged(logs: list[Log]) -> Log:
    logs = sorted(logs, key=lambda log: next((row.time for row in log.rows if row.time is not None), 0.0))
    return msgspec.structs.replace(
        logs[-1],
        source=logs[0].source.parent,
        rows=tuple(row for log in logs for row in log.rows),
        settings={name: value for log in logs for name, value in log.settings.items()},
        notes=tuple(note for log in logs for note in log.notes),
        checkpoints=tuple(sorted({step for log in logs for step in log.checkpoints})),
    )


# -- two processes of one run


def _paired(logs: list[Log]) -> list[Log]:
    """A trainer goes with the orchestrator of its name; where there is one of each, with that."""
    roles = [_role(keys_of(log)) for log in logs]
    trainers = [log for log, role in zip(logs, roles, strict=True) if role == "trainer"]
    orchestrators = [log for log, role in zip(logs, roles, strict=True) if role == "orchestrator"]
    lone = len(trainers) == len(orchestrators) == 1
    joined: dict[int, Log] = {}
    gone: set[int] = set()
    for trainer in trainers:
        fitting = [each for each in orchestrators if lone or _name(each) == _name(trainer)]
        if len(fitting) == 1 and id(fitting[0]) not in gone:
            joined[id(trainer)] = _pair(trainer, fitting[0])
            gone.add(id(fitting[0]))
    return [joined.get(id(log), log) for log in logs if id(log) not in gone]


def _role(keys: set[str]) -> str:
    if "loss/mean" in keys:
        return "trainer" if any(key in keys for key in TRAINER) else ""
    return "orchestrator" if any(map(ORCHESTRATOR.match, keys)) else ""


def _name(log: Log) -> str:
    """What the two have in common: the run's name, or the path of the file without the process."""
    name = str(log.settings.get("run_name") or log.settings.get("name") or "")
    return ROLE.sub("", name) if name else "/".join(ROLE.sub("", part) for part in log.source.parts)


def _pair(trainer: Log, orchestrator: Log) -> Log:
    """Rows of the same step are one; of keys that both have, the trainer's keeps the name. A run that went back to an
    earlier step did so in both, so the n-th row of a step goes with the n-th of that step."""
    both = _keys(trainer) & _keys(orchestrator)
    waiting: dict[tuple[int | None, RowKind], list[dict[str, float]]] = defaultdict(list)
    for row in _by_step(orchestrator.rows):
        values = {f"orchestrator/{key}" if key in both else key: value for key, value in row.values.items()}
        waiting[row.step, row.kind].append(values)
    rows = []
    for row in _by_step(trainer.rows):
        partner = waiting[row.step, row.kind]
        rows.append(msgspec.structs.replace(row, values={**(partner.pop(0) if partner else {}), **row.values}))
    left = [Row(values=values, step=step, kind=kind) for (step, kind), each in waiting.items() for values in each]
    return msgspec.structs.replace(
        trainer,
        framework="prime_rl",
        rows=_sorted_in(rows, left),
        settings={**orchestrator.settings, **trainer.settings},
        notes=(*orchestrator.notes, *trainer.notes),
        error=trainer.error or orchestrator.error,
        checkpoints=tuple(sorted({*trainer.checkpoints, *orchestrator.checkpoints})),
        samples=(*orchestrator.samples, *trainer.samples),
    )


def _by_step(rows: Iterable[Row]) -> list[Row]:
    """Neighbouring rows of one step as one, as a process logs in several calls."""
    merged: list[Row] = []
    for row in rows:
        last = merged[-1] if merged else None
        if last and last.step == row.step and last.kind == row.kind and last.values.keys().isdisjoint(row.values):
            merged[-1] = msgspec.structs.replace(last, values={**last.values, **row.values})
        else:
            merged.append(row)
    return merged


def _sorted_in(rows: list[Row], left: list[Row]) -> tuple[Row, ...]:
    """Each of `left` before the first row of a later step; at the end if there is none."""
    result = list(rows)
    for row in left:
        step = -1 if row.step is None else row.step
        place = next((i for i, each in enumerate(result) if each.step is not None and each.step > step), len(result))
        result.insert(place, row)
    return tuple(result)


# -- two axes of one run


def _on_one_axis(log: Log) -> Log:
    if log.framework not in (None, "slime"):
        return log
    keys = keys_of(log)
    if not any(key in keys for key in SLIME) or not any(key.startswith("rollout/") for key in keys):
        return log
    return msgspec.structs.replace(log, rows=one_axis(log.rows))


def one_axis(rows: Sequence[Row]) -> tuple[Row, ...]:
    """slime's rows, by rollout: several train steps belong to each, whose values are averaged. Both count from 0. Where
    train steps fall back, a run was started again, and what is before stays before."""
    counts = {False: 0, True: 0}
    for row in rows:
        if row.step is not None and row.kind == "train":
            for key in row.values:
                counts[key.startswith("train/")] = max(counts[key.startswith("train/")], row.step + 1)
    each = max(round(counts[True] / counts[False]), 1) if counts[False] else 1
    done: list[Row] = []
    segment = _Segment(each)
    for row in rows:
        if segment.begins_anew(row):
            done += segment.rows()
            segment = _Segment(each)
        segment.add(row)
    return (*done, *segment.rows())


class _Segment:
    """Rows of one stretch without a restart, in which rollouts may run ahead of training."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._last = -1
        self._found: dict[tuple[int, RowKind], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._times: dict[tuple[int, RowKind], float | None] = {}

    def begins_anew(self, row: Row) -> bool:
        return row.step is not None and row.step < self._last and any(key.startswith("train/") for key in row.values)

    def add(self, row: Row) -> None:
        step = -1 if row.step is None else row.step
        for key, value in row.values.items():
            trained = key.startswith("train/")
            place = (step // self._each if trained else step, row.kind)
            self._found[place][key].append(value)
            self._times.setdefault(place, row.time)
            self._last = step if trained else self._last

    def rows(self) -> list[Row]:
        return [
            Row(
                values={key: sum(values) / len(values) for key, values in found.items()},
                step=step if step >= 0 else None,
                time=self._times[step, kind],
                kind=kind,
            )
            for (step, kind), found in sorted(self._found.items(), key=lambda entry: entry[0])
        ]
