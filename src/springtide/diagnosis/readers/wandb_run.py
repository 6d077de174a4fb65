"""The folder of a W&B run, or one of its files alone.

The history is in the `.wandb` file. Without that the console, `files/output.log`, may have it. With neither there is
only the summary: the last value of each metric, from which no trend can be told.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from springtide.diagnosis.log import Log, Note
from springtide.diagnosis.readers import console
from springtide.diagnosis.readers.axis import Entry, rows_on_axis
from springtide.diagnosis.readers.head import head
from springtide.diagnosis.readers.values import flat, from_json, numbers
from springtide.diagnosis.readers.wandb_records import MAGIC, Records, read_records
from springtide.diagnosis.readers.yaml_text import settings_of

SUMMARY = re.compile(r"wandb-summary.*\.json")
CONTAINER = "wandb"
LAST_ONLY = Note(text="There is only the summary: last values, from which no trend can be told.")


def sniff(path: Path) -> bool:
    if path.is_dir():
        return bool(_records_file(path)) or any((path / "files").glob("wandb-*.json"))
    if SUMMARY.fullmatch(path.name):
        return b"{" in head(path)[:64]
    return path.suffix == ".wandb" and head(path)[:4] == MAGIC


def read(path: Path) -> list[Log]:
    if path.is_dir():
        return [_folder(path)]
    if path.suffix == ".wandb":
        return [_from_records(path, read_records(path))]
    return [_from_summary(path, path)]


def _folder(path: Path) -> Log:
    file, printed = _records_file(path), path / "files" / "output.log"
    records = read_records(file) if file else Records()
    log = _from_records(path, records)
    shown = console.read(printed)[0] if printed.is_file() else None
    if not log.rows and shown is not None and shown.rows:
        log = msgspec.structs.replace(shown, source=path, container=CONTAINER)
    elif not log.rows:
        log = _from_summary(path, path / "files" / "wandb-summary.json", records.summary)
    if shown is not None:
        log = msgspec.structs.replace(log, error=shown.error, checkpoints=shown.checkpoints)
    if log.error is None and records.exit_code:
        log = msgspec.structs.replace(log, error=f"The process ended with exit code {records.exit_code}.")
    return msgspec.structs.replace(log, settings={**log.settings, **_settings(path), **_plain(records.config)})


def _records_file(path: Path) -> Path | None:
    return next(iter(sorted(path.glob("run-*.wandb"))), None)


def _from_records(path: Path, records: Records) -> Log:
    notes = []
    if records.damaged:
        notes.append(Note(text=f"The file is damaged in {records.damaged} places; what is there was lost."))
    return Log(
        source=path,
        container=CONTAINER,
        rows=rows_on_axis(records.history),
        settings=_plain(records.config),
        notes=tuple(notes),
    )


def _from_summary(path: Path, file: Path, summary: Mapping[str, Any] | None = None) -> Log:
    try:
        content = from_json(file.read_bytes()) if file.is_file() else summary
    except ValueError:
        content = None
    if not isinstance(content, dict):
        return Log(source=path, container=CONTAINER, rows=(), notes=(Note(text="The summary cannot be read."),))
    rows = rows_on_axis([Entry(numbers(content))])
    return Log(source=path, container=CONTAINER, rows=rows, notes=(LAST_ONLY,), last_only=True)


def _settings(path: Path) -> dict[str, Any]:
    """`files/config.yaml`: every name has its value one level below."""
    file = path / "files" / "config.yaml"
    if not file.is_file():
        return {}
    found = settings_of(file.read_text(encoding="utf-8", errors="replace"))
    return {
        name.replace(".value", "", 1): value for name, value in found.items() if not name.startswith(("_", "wandb"))
    }


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    return flat({name: value for name, value in config.items() if not name.startswith("_")})
