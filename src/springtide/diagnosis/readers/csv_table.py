"""Tables as text: a column per metric, or W&B's export of one metric of many runs.

An export has a column `RUN - KEY` per run, and two more with the smallest and the largest value of what was averaged
for the plot. It gives a log per run; several exports of the same runs are put together, each with its metric.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from springtide.diagnosis.log import Log, Note, Row
from springtide.diagnosis.readers.axis import AXES, Entry, rows_on_axis
from springtide.diagnosis.readers.head import head, is_text
from springtide.diagnosis.readers.values import number, step_of

SUFFIXES = (".csv", ".tsv")
EXPORT = re.compile(r"(?P<run>.+) - (?P<key>.+)", re.DOTALL)
RANGE = ("__MIN", "__MAX")
CONTAINER = "wandb_export"
WIDEST = 10_000
"""Columns that are read."""


def sniff(path: Path) -> bool:
    if path.suffix.lower() not in SUFFIXES or not path.is_file() or not is_text(head(path)):
        return False
    table = _rows(head(path).decode("utf-8", "replace").splitlines()[:50], _delimiter(path))
    try:
        header, *rows = [row for row in table if row]
    except (ValueError, csv.Error):
        return False
    filled = [cell for row in rows[:-1] or rows for cell in row if cell.strip()]
    numeric = sum(number(cell.strip()) is not None for cell in filled)
    return len(header) > 1 and bool(rows) and numeric >= 0.5 * len(filled) and not all(number(name) for name in header)


def read(path: Path) -> list[Log]:
    notes: list[Note] = []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        table = _rows((line.replace("\0", "") for line in file), _delimiter(path))
        try:
            header = [name.strip().lstrip("\ufeff") for name in next(table, [])][:WIDEST]
            exported = [EXPORT.fullmatch(name) for name in header]
            cells = _numbers(table, len(header), notes)
            if any(exported) and any(name.endswith(RANGE) for name in header):
                return _exports(path, header, exported, cells, notes)
            entries = [Entry(_row(header, row)) for row in cells]
        except csv.Error as error:
            return [Log(source=path, container="csv", rows=(), notes=(Note(text=f"It is no table: {error}."),))]
    return [Log(source=path, container="csv", rows=rows_on_axis(entries), notes=tuple(notes))]


def put_together(logs: Iterable[Log]) -> list[Log]:
    """Exports of one run from one folder, each of another metric, become one log."""
    found: list[Log] = []
    places: dict[tuple[Path, str], int] = {}
    for log in logs:
        name = log.source.parent, log.source.name.partition("#")[2]
        if log.container == CONTAINER and name in places:
            found[places[name]] = _both(found[places[name]], log)
        else:
            places[name] = len(found)
            found.append(log)
    return found


def _both(one: Log, other: Log) -> Log:
    rows = sorted((*one.rows, *other.rows), key=lambda row: row.step or 0)
    return msgspec.structs.replace(one, rows=tuple(rows), notes=tuple(dict.fromkeys((*one.notes, *other.notes))))


def _delimiter(path: Path) -> str:
    if path.suffix.lower() == ".tsv":
        return "\t"
    first = head(path).split(b"\n", 1)[0]
    return max(",", ";", "\t", key=lambda mark: first.count(mark.encode()))


def _rows(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    return csv.reader(lines, delimiter=delimiter)


def _numbers(table: Iterable[list[str]], width: int, notes: list[Note]) -> list[list[float | None]]:
    found = []
    try:
        for row in table:
            if any(cells := [number(cell.strip()) for cell in row[:width]]) or 0.0 in cells:
                found.append(cells)
    except csv.Error as error:
        notes.append(Note(text=f"The table is damaged from row {len(found) + 2} on: {error}."))
    return found


def _row(header: Sequence[str], cells: Sequence[float | None]) -> dict[str, float]:
    return {name: value for name, value in zip(header, cells, strict=False) if name and value is not None}


def _exports(
    path: Path,
    header: Sequence[str],
    exported: Sequence[re.Match[str] | None],
    cells: Sequence[Sequence[float | None]],
    notes: Sequence[Note],
) -> list[Log]:
    """The step is a column that belongs to no run and says so; an axis of time is none, and then rows are counted."""
    own = [place for place, match in enumerate(exported) if match is None]
    named = [place for place in own if header[place] in AXES or "step" in header[place].lower()]
    axis = named[0] if named else None
    rows: dict[str, list[Row]] = {}
    for place, match in enumerate(exported):
        if match is None or match["key"].endswith(RANGE) or match["key"] in AXES:
            continue
        for row in cells:
            value = row[place] if place < len(row) else None
            if value is not None:
                step = None if axis is None or axis >= len(row) else step_of(row[axis])
                rows.setdefault(match["run"], []).append(Row(values={match["key"]: value}, step=step))
    return [
        Log(source=_source(path, run), container=CONTAINER, rows=tuple(found), notes=tuple(notes))
        for run, found in rows.items()
    ]


def _source(path: Path, run: str) -> Path:
    """Text from outside as part of a name: printable, and no path."""
    safe = "".join(each if each.isprintable() and each not in "/\\" else "_" for each in run)[:120]
    return path.with_name(f"{path.name}#{safe}")
