"""A diagnosis for machines: the object that `springtide doctor --json` prints.

What is said of a run in these fields is stable; a later version may add fields. Values that are not finite are null.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from springtide.diagnosis.reports.account import Examined, notes
from springtide.diagnosis.verdict import Symptom


def document(runs: Sequence[Examined]) -> dict[str, Any]:
    return {"runs": [_run(each) for each in runs]}


def encode(runs: Sequence[Examined]) -> str:
    """On one line, and ASCII-safe: a lone surrogate in a path or a name must not end the program."""
    return msgspec.json.encode(_printable(document(runs))).decode()


def _run(examined: Examined) -> dict[str, Any]:
    found = examined.diagnosis
    whole: dict[str, Any] = msgspec.to_builtins(found)
    whole["symptoms"] = [_symptom(each) for each in found.symptoms]
    whole["causes"] = [cause.id for cause in found.causes]
    whole["notes"] = notes(examined)
    return whole


def _symptom(symptom: Symptom) -> dict[str, Any]:
    """Causes are their ids, the likeliest first; what is said of each stands in `details`."""
    whole: dict[str, Any] = msgspec.to_builtins(symptom)
    whole["causes"] = [cause.id for cause in symptom.causes]
    whole["details"] = msgspec.to_builtins(symptom.causes)
    return whole


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(each) for each in value]
    return value
