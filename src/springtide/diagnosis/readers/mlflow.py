"""MLflow: a folder `mlruns/EXPERIMENT/RUN` with one file per metric, or the database that newer versions write.

A metric's name is the path of its file, and lines are `time value step`, the time in milliseconds (no step in the first
versions). `@` is not allowed in a name there, and frameworks write `_at_` for it.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from springtide.diagnosis.log import Log, Note
from springtide.diagnosis.readers.console_settings import scalar
from springtide.diagnosis.readers.database import DAMAGED, columns, database, is_database
from springtide.diagnosis.readers.grouping import RowBuilder

Point = tuple[int, int, str, float]
"""Time in milliseconds, step, name, value."""

FAILED = {"4", "FAILED"}
HUGE = 1.7976931348623157e308
"""What the database holds for infinity."""
MAX_PARAMETER = 1 << 16


def sniff(path: Path) -> bool:
    if path.is_file():
        return is_database(path) and _is_store(path)
    return next(_runs(path), None) is not None


def read(path: Path) -> list[Log]:
    if path.is_file():
        return _database(path)
    return [_folder(run) for run in _runs(path)]


def _runs(path: Path) -> Iterator[Path]:
    """Folders of runs in `path`, which is one, an experiment or a folder of experiments."""
    level = [path]
    for _ in range(3):
        following = []
        for folder in level:
            if (folder / "metrics").is_dir() and (folder / "meta.yaml").is_file():
                if not re.search(r"^lifecycle_stage:\s*deleted", _text(folder / "meta.yaml"), re.MULTILINE):
                    yield folder
            else:
                following += _folders(folder)
        level = following


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(each for each in path.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_PARAMETER).decode("utf-8", "replace")
    except OSError:
        return ""


def _folder(run: Path) -> Log:
    points: list[Point] = []
    notes: list[Note] = []
    for file in sorted((run / "metrics").rglob("*")):
        if file.is_file():
            points += _metric(file, file.relative_to(run / "metrics").as_posix(), notes)
    settings = {
        file.relative_to(run / "params").as_posix(): scalar(_text(file))
        for file in sorted((run / "params").rglob("*"))
        if file.is_file()
    }
    status = re.search(r"^status:\s*(\w+)", _text(run / "meta.yaml"), re.MULTILINE)
    return _log(run, points, settings, notes, failed=bool(status and status[1] in FAILED))


def _metric(file: Path, name: str, notes: list[Note]) -> list[Point]:
    points: list[Point] = []
    bad = 0
    try:
        with file.open("r", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                parts = line.split()
                try:
                    step = int(parts[2]) if len(parts) > 2 else len(points)
                    points.append((int(float(parts[0])), step, name, float(parts[1])))
                except (IndexError, ValueError, OverflowError):
                    bad += bool(parts)
    except OSError as error:
        notes.append(Note(text=f"metric {name} cannot be read: {error.strerror or error}"))
    if bad:
        notes.append(Note(text=f"metric {name}: {bad} lines are not values and were left out"))
    return points


def _log(source: Path, points: Iterable[Point], settings: dict[str, Any], notes: list[Note], *, failed: bool) -> Log:
    """Metrics lie one after the other in the store. Here they are put together again by the time they were logged at,
    so that a step that was run twice comes twice."""
    builder = RowBuilder()
    for time, step, name, value in sorted(points, key=lambda point: point[:2]):
        builder.add({re.sub(r"_at_(?=\d)", "@", name): value}, step, time / 1000)
    return Log(
        source=source,
        container="mlflow",
        rows=builder.rows(),
        settings=settings,
        notes=tuple(notes),
        error="MLflow has the run as failed" if failed else None,
    )


def _is_store(path: Path) -> bool:
    try:
        with database(path) as connection:
            return columns(connection, "metrics") >= {"key", "value", "timestamp", "run_uuid", "step"}
    except DAMAGED:
        return False


def _database(path: Path) -> list[Log]:
    points: dict[str, list[Point]] = defaultdict(list)
    settings: dict[str, dict[str, Any]] = defaultdict(dict)
    failed: set[str] = set()
    notes: list[Note] = []
    try:
        with database(path) as connection:
            hidden = set()
            if columns(connection, "runs") >= {"run_uuid", "status", "lifecycle_stage"}:
                for run, status, stage in connection.execute("SELECT run_uuid, status, lifecycle_stage FROM runs"):
                    failed |= {run} if status in FAILED else set()
                    hidden |= {run} if stage == "deleted" else set()
            if columns(connection, "params") >= {"run_uuid", "key", "value"}:
                for run, key, value in connection.execute("SELECT run_uuid, key, value FROM params"):
                    settings[run][str(key)] = scalar(str(value))
            names = columns(connection, "metrics")
            flag = "is_nan" if "is_nan" in names else "0"
            query = f"SELECT run_uuid, timestamp, step, key, value, {flag} FROM metrics ORDER BY rowid"
            for run, time, step, key, value, is_nan in connection.execute(query):
                if run not in hidden and (value := _value(value, is_nan)) is not None:
                    points[run].append((_whole(time), _whole(step), str(key), value))
    except DAMAGED as error:
        notes.append(Note(text=f"the database is damaged, and was read as far as it goes: {error}"))
    logs = []
    for run, found in points.items():
        logs.append(_log(path, found, {"run_id": run, **settings[run]}, notes, failed=run in failed))
    return logs


def _value(value: object, is_nan: object) -> float | None:
    if is_nan:
        return math.nan
    if not isinstance(value, int | float):
        return None
    return math.copysign(math.inf, value) if abs(value) >= HUGE else float(value)


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else 0
