"""A JSON file that is a history: a list of rows, an object with such a list inside, or one list of values per
metric."""

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from springtide.diagnosis.log import Log
from springtide.diagnosis.readers.axis import rows_on_axis
from springtide.diagnosis.readers.head import head
from springtide.diagnosis.readers.jsonl import entry_of, is_row
from springtide.diagnosis.readers.values import from_json, number

INSIDE = ("history", "metrics", "logs", "log", "rows", "steps", "train", "training", "data", "results")
LARGEST = 1 << 28
"""Bytes beyond which a file is not taken for a history."""


def sniff(path: Path) -> bool:
    if path.suffix.lower() != ".json" or not path.is_file() or path.stat().st_size > LARGEST:
        return False
    start = head(path).lstrip()[:1]
    return start in (b"[", b"{") and b"[" in head(path) and bool(_rows(path))


def read(path: Path) -> list[Log]:
    names: dict[str, str] = {}
    entries = [entry_of(row, names) for row in _rows(path)]
    return [Log(source=path, container="json_rows", rows=rows_on_axis(entries))]


def _rows(path: Path) -> list[Mapping[str, Any]]:
    try:
        content = from_json(path.read_bytes())
    except ValueError:
        return []
    places = [content, *(content.get(name) for name in INSIDE)] if isinstance(content, dict) else [content]
    return next((rows for place in places if (rows := _history(place))), [])


def _history(place: Any) -> list[Mapping[str, Any]]:
    if isinstance(place, list) and len(place) > 1:
        rows: list[Mapping[str, Any]] = [row for row in place if isinstance(row, dict)]
        return rows if rows and sum(is_row(row) for row in rows) > 0.8 * len(place) else []
    if isinstance(place, dict):
        columns = {name: value for name, value in place.items() if _is_column(value)}
        longest = max((len(value) for value in columns.values()), default=0)
        full = {name: value for name, value in columns.items() if len(value) == longest}
        if len(full) > 1:
            return [
                {name: value for name, value in zip(full, row, strict=True) if value is not None}
                for row in zip_longest(*full.values())
            ]
    return []


def _is_column(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) > 2 and all(each is None or number(each) is not None for each in value)
    )
