"""Trackio: one SQLite file per project (one for all, in its first versions), a row per call of `log`, metrics as JSON.

Numbers that JSON does not have are stored as the words "NaN", "Infinity" and "-Infinity".
"""

import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

from springtide.diagnosis.log import Log, Note
from springtide.diagnosis.readers.database import DAMAGED, columns, database, is_database
from springtide.diagnosis.readers.grouping import RowBuilder
from springtide.diagnosis.readers.values import flat, from_json, numbers, step_of

NEEDED = {"run_name", "metrics"}


def sniff(path: Path) -> bool:
    if not path.is_file() or not is_database(path):
        return False
    try:
        with database(path) as connection:
            return columns(connection, "metrics") >= NEEDED
    except DAMAGED:
        return False


def read(path: Path) -> list[Log]:
    builders: dict[str, RowBuilder] = {}
    settings: dict[str, dict[str, Any]] = {}
    notes: list[Note] = []
    try:
        with database(path) as connection:
            _metrics(connection, builders, notes)
            _configurations(connection, settings)
    except DAMAGED as error:
        notes.append(Note(text=f"the database is damaged, and was read as far as it goes: {error}"))
    return [
        Log(
            source=path,
            container="trackio",
            rows=builder.rows(),
            settings={**settings.get(run, {}), "run_name": run},
            notes=tuple(notes),
        )
        for run, builder in builders.items()
    ]


def _metrics(connection: sqlite3.Connection, builders: dict[str, RowBuilder], notes: list[Note]) -> None:
    known = columns(connection, "metrics")
    wanted = ["run_name", "metrics", *(each for each in ("step", "timestamp", "project") if each in known)]
    bad = 0
    for record in connection.execute(f"SELECT {', '.join(wanted)} FROM metrics ORDER BY rowid"):
        row = dict(zip(wanted, record, strict=True))
        name = "/".join(str(row[each]) for each in ("project", "run_name") if row.get(each) is not None)
        builder = builders.setdefault(name, RowBuilder())
        parsed = _mapping(row["metrics"])
        if parsed is None:
            bad += 1
            continue
        builder.add(numbers(parsed), step_of(row.get("step")), moment(row.get("timestamp")))
    if bad:
        notes.append(Note(text=f"{bad} rows are not metrics and were left out"))


def _configurations(connection: sqlite3.Connection, settings: dict[str, dict[str, Any]]) -> None:
    known = columns(connection, "configs")
    if not known >= {"run_name", "config"}:
        return
    for run, text in connection.execute("SELECT run_name, config FROM configs"):
        if (parsed := _mapping(text)) is not None:
            settings[str(run)] = flat(parsed)


def _mapping(text: object) -> dict[str, Any] | None:
    try:
        parsed = from_json(str(text).encode())
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def moment(text: Any) -> float | None:
    """Unix seconds of a time in ISO format."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
