"""JSON lines, one object per step: tinker's `metrics.jsonl`, verl's `{"step": …, "data": {…}}`, and loops of one's own.

Nested objects are flattened with slashes. A line that is torn, or is no object, is stepped over. Files whose lines are
mostly text are rollouts and not read here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from springtide.diagnosis.log import Log, Note
from springtide.diagnosis.readers.axis import AXES, TIMES, Entry, rows_on_axis
from springtide.diagnosis.readers.head import head
from springtide.diagnosis.readers.values import from_json, number, numbers, step_of

SUFFIXES = (".jsonl", ".ndjson", ".jsonlines")
NOT_METRICS = ("checkpoints.jsonl",)
ENVELOPES = ("data", "metrics", "values")
"""Where some loggers put the values, beside the step."""

SAID = (
    "prompt",
    "completion",
    "response",
    "output",
    "input",
    "messages",
    "question",
    "answer",
    "text",
    "conversations",
)
"""Names under which a row of a dump has what was asked and said."""

TEXT = 400
"""Characters from which a string is part of a rollout and not of a metric."""

OF_ALL = "global_step/max_steps"
"""ms-swift's counter, a text such as 5/100."""

FEW = 3
"""Lines of the head that must be rows of numbers, or all of them if there are less."""


def sniff(path: Path) -> bool:
    if path.suffix.lower() not in SUFFIXES or path.name in NOT_METRICS or not path.is_file():
        return False
    found = [json_object(line) for line in head(path).split(b"\n")[:20] if line.strip()]
    rows = [each for each in found if each is not None and is_row(each)]
    return len(rows) >= min(FEW, len(found)) > 0


def read(path: Path) -> list[Log]:
    entries, torn, names = [], 0, dict[str, str]()
    with path.open("rb") as file:
        for line in file:
            read = json_object(line)
            if read is None:
                torn += bool(line.strip())
            else:
                entries.append(entry_of(read, names))
    notes = (Note(text=f"{torn} lines are torn or hold no JSON object."),) if torn else ()
    return [Log(source=path, container="jsonl", rows=rows_on_axis(entries), notes=notes)]


def entry_of(read: Mapping[str, Any], names: dict[str, str]) -> Entry:
    """`names` holds one copy of each key."""
    inside = next((read[name] for name in ENVELOPES if isinstance(read.get(name), dict)), None)
    found = numbers(read if inside is None else inside)
    if inside is not None:
        outside = {name: value for name in (*AXES, *TIMES) if (value := number(read.get(name))) is not None}
        found = {**found, **outside}
    values = {names.setdefault(key, key): value for key, value in found.items()}
    counter = read.get("step", str(read.get(OF_ALL, "")).partition("/")[0])
    return Entry(values, step_of(counter))


def json_object(line: bytes) -> dict[str, Any] | None:
    try:
        read = from_json(line)
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


def is_row(entry: Mapping[str, Any]) -> bool:
    """Numbers for the most part, and no long text."""
    if any(isinstance(entry.get(name), str | list) for name in SAID):
        return False
    texts = [value for value in entry.values() if isinstance(value, str)]
    if any(len(text) > TEXT for text in texts):
        return False
    found = [value for name, value in numbers(entry).items() if not isinstance(entry.get(name), str)]
    return len(found) >= 2 and len(found) >= len(texts)
