"""Numbers out of what loggers write: strings, numpy's and torch's own notation, nested mappings."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

DEPTH = 8
"""Levels of nesting that are followed."""

LARGEST_STEP = 2**53
"""Steps beyond what a float holds exactly are no steps."""

WRAPPED = re.compile(r"(?:\w+\.)*(?:float\d*|int\d*|bfloat16|tensor|array)\(([^(),]*)[^()]*\)")


def number(value: Any) -> float | None:
    """What a logger meant as a number; None for all else."""
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        return _from_text(value)
    return None


def _from_text(text: str) -> float | None:
    if len(text) > 64 or "_" in text:
        return None
    wrapped = WRAPPED.fullmatch(text.strip())
    try:
        return float(wrapped[1] if wrapped else text)
    except ValueError:
        return None


def step_of(value: Any) -> int | None:
    """A whole number that can be a step."""
    found = number(value)
    if found is None or not math.isfinite(found) or abs(found) > LARGEST_STEP:
        return None
    return round(found)


def numbers(mapping: Mapping[str, Any]) -> dict[str, float]:
    """All numbers in a mapping, nested names joined by a slash; W&B's tables and images, which have a `_type`,
    aside."""
    found: dict[str, float] = {}
    _gather(mapping, "", found, DEPTH)
    return found


def _gather(mapping: Mapping[str, Any], prefix: str, found: dict[str, float], depth: int) -> None:
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            if depth and "_type" not in value:
                _gather(value, f"{prefix}{key}/", found, depth - 1)
        elif (read := number(value)) is not None:
            found[f"{prefix}{key}"] = read


def flat(mapping: Mapping[str, Any], prefix: str = "", depth: int = DEPTH) -> dict[str, Any]:
    """Settings by dotted name; lists stay what they are."""
    found: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, Mapping) and depth:
            found |= flat(value, f"{prefix}{key}.", depth - 1)
        else:
            found[f"{prefix}{key}"] = value
    return found


def from_json(data: bytes) -> Any:
    """Also what is not quite JSON: NaN and Infinity as Python writes them. ValueError if it is neither."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
