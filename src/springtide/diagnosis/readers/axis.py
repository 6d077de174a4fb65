"""One step axis for all rows of a log, whatever counters its writer put into them.

A logger's own counter (`_step` of W&B) counts calls; the trainer's is among the values, of most rows or of all. The
first of the known names that most rows have, and that moves, is the axis; a row without it stands where the one before
it stands.
"""

from collections.abc import Sequence
from typing import NamedTuple

from springtide.diagnosis.log import Row
from springtide.diagnosis.readers.values import step_of

AXES = (
    "step",
    "global_step",
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "train/step",
    "training_step",
    "train_step",
    "rollout/step",
    "current_steps",
    "iteration",
    "progress/batch",
    "iter",
    "update",
    "Step",
    "_step",
)
TIMES = ("_timestamp", "timestamp", "time", "wall_time")
HELD_OUT = ("eval", "val", "test")
MOST = 0.5


class Entry(NamedTuple):
    """Numbers of a row, its writer's counter if it has one, and its Unix time."""

    values: dict[str, float]
    counter: int | None = None
    time: float | None = None


def rows_on_axis(entries: Sequence[Entry]) -> tuple[Row, ...]:
    """Rows in the order in which they were written; those without any value are left out."""
    name = _axis(entries)
    found = []
    for entry in entries:
        values = {key: value for key, value in entry.values.items() if key != name and key not in TIMES}
        if not values:
            continue
        step = entry.counter if name is None else step_of(entry.values.get(name))
        found.append(Row(values=values, step=step, time=_time(entry), kind="eval" if _held_out(values) else "train"))
    return tuple(found)


def _axis(entries: Sequence[Entry]) -> str | None:
    for name in AXES:
        steps = [entry.values[name] for entry in entries if name in entry.values]
        if steps and len(steps) >= MOST * len(entries) and (len(entries) == 1 or min(steps) < max(steps)):
            return name
    return None


def _time(entry: Entry) -> float | None:
    return entry.time if entry.time is not None else next((entry.values[n] for n in TIMES if n in entry.values), None)


def _held_out(values: dict[str, float]) -> bool:
    names = [name for name in values if not name.startswith("_") and name != "epoch"]
    return bool(names) and all(name.startswith(HELD_OUT) for name in names)
