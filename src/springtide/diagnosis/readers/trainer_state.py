"""`trainer_state.json` of transformers' Trainer, which TRL and Unsloth train with: all that was logged up to a
checkpoint.

Values are means over `logging_steps`, except for the gradient norm and the learning rate. A file that is torn gives the
rows of its history that are whole.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from springtide.diagnosis.log import Log, Note, Row
from springtide.diagnosis.readers.head import head
from springtide.diagnosis.readers.values import from_json, numbers, step_of

ROW = re.compile(rb"\{[^{}]*\}")
STATE = ("logging_steps", "max_steps", "save_steps", "eval_steps", "num_train_epochs", "train_batch_size")


def sniff(path: Path) -> bool:
    return path.suffix == ".json" and (path.name == "trainer_state.json" or b'"log_history"' in head(path))


def read(path: Path) -> list[Log]:
    data = path.read_bytes()
    notes = []
    try:
        state = from_json(data)
    except ValueError:
        state = None
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        state = {"log_history": list(_whole_rows(data))}
        notes.append(Note(text="The file is torn or damaged; the rows of its history that are whole were read."))
    rows = tuple(_row(entry) for entry in state["log_history"] if isinstance(entry, dict))
    return [
        Log(
            source=path,
            container="trainer_state",
            rows=tuple(row for row in rows if row.values),
            settings={name: state[name] for name in STATE if state.get(name) is not None},
            window=_window(state),
            notes=tuple(notes),
            checkpoints=_saved(state),
        )
    ]


def _whole_rows(data: bytes) -> Iterator[Any]:
    start = data.find(b'"log_history"')
    for match in ROW.finditer(data, max(start, 0)):
        try:
            yield from_json(match[0])
        except ValueError:
            continue


def _row(entry: dict[str, Any]) -> Row:
    values = numbers(entry)
    values.pop("step", None)
    held_out = any(key.startswith("eval_") for key in values)
    return Row(values=values, step=step_of(entry.get("step")), kind="eval" if held_out else "train")


def _steps(state: dict[str, Any], name: str) -> int:
    """A number of steps; transformers takes one below 1 as a share of all."""
    value = state.get(name)
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        return 0
    if value >= 1:
        return int(value)
    return math.ceil(value * (step_of(state.get("max_steps")) or 0))


def _window(state: dict[str, Any]) -> int:
    return max(_steps(state, "logging_steps"), 1)


def _saved(state: dict[str, Any]) -> tuple[int, ...]:
    every, done = _steps(state, "save_steps"), step_of(state.get("global_step")) or 0
    return tuple(range(every, done + 1, every)) if every and done // every <= 100_000 else ()
