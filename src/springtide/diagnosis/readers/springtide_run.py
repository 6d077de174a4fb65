"""The folder of a run of Springtide, or its `metrics.jsonl` alone. See docs/run-folder.md."""

import math
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from springtide.diagnosis.log import Log, Note, Row
from springtide.diagnosis.readers.head import head
from springtide.diagnosis.readers.values import flat

FRAMEWORK = "springtide"


class Line(msgspec.Struct):
    time: float
    step: int
    metrics: dict[str, float | None]


DECODER = msgspec.json.Decoder(Line)


def sniff(path: Path) -> bool:
    if path.is_dir():
        return (path / "run.json").is_file() and (path / "recipe.toml").is_file()
    if path.suffix != ".jsonl":
        return False
    return any(_decode(line) is not None for line in head(path).split(b"\n")[:3])


def read(path: Path) -> list[Log]:
    folder = path if path.is_dir() else path.parent if (path.parent / "run.json").is_file() else None
    rows, notes = _rows(path / "metrics.jsonl" if path.is_dir() else path)
    return [
        Log(
            source=path,
            container="springtide_run",
            framework=FRAMEWORK,
            rows=rows,
            settings={} if folder is None else _settings(folder),
            notes=notes,
            error=None if folder is None else _error(folder),
            checkpoints=() if folder is None else _checkpoints(folder),
            samples=() if folder is None else tuple(folder.glob("journal.sqlite")),
        )
    ]


def _rows(path: Path) -> tuple[tuple[Row, ...], tuple[Note, ...]]:
    if not path.is_file():
        return (), (
            Note(text="The run has no metrics.jsonl: it ended before its first step, or was not copied whole."),
        )
    rows, torn = [], 0
    with path.open("rb") as file:
        for line in file:
            read = _decode(line)
            if read is None:
                torn += bool(line.strip())
                continue
            values = {name: math.nan if value is None else value for name, value in read.metrics.items()}
            rows.append(Row(values=values, step=read.step, time=read.time))
    notes = (Note(text=f"{torn} lines could not be read."),) if torn else ()
    return tuple(rows), notes


def _decode(line: bytes) -> Line | None:
    try:
        return DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _settings(folder: Path) -> dict[str, Any]:
    try:
        return flat(tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _error(folder: Path) -> str | None:
    """What stopped the run, as its status says."""
    try:
        status = msgspec.json.decode((folder / "status.json").read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(status, dict) or status.get("phase") != "failed":
        return None
    return str(status.get("detail") or "the run failed")


def _checkpoints(folder: Path) -> tuple[int, ...]:
    names = (each.name.removeprefix("step-") for each in folder.glob("checkpoints/step-*"))
    return tuple(sorted(int(name) for name in names if name.isascii() and name.isdigit()))
