"""TensorBoard: event files. A run that was started again wrote another file into the same folder; see gather.py.

The texts in which transformers stores a run's arguments become its settings.
"""

from pathlib import Path
from typing import Any

from springtide.diagnosis.log import Log, Note
from springtide.diagnosis.readers.event import Damage, decode, payloads
from springtide.diagnosis.readers.grouping import RowBuilder
from springtide.diagnosis.readers.values import flat, from_json

MARK = "tfevents"
ARGUMENTS = ("args", "args/text_summary")


def sniff(path: Path) -> bool:
    return MARK in path.name and path.is_file()


def read(path: Path) -> list[Log]:
    damage = Damage()
    builder = RowBuilder()
    settings: dict[str, Any] = {}
    for event in map(decode, payloads(path.read_bytes(), damage)):
        for tag, value in event.scalars:
            builder.add({tag: value}, event.step, event.time)
        for tag in ARGUMENTS:
            if tag in event.texts:
                settings |= _arguments(event.texts[tag])
    return [
        Log(
            source=path,
            container="tensorboard",
            rows=builder.rows(),
            settings=settings,
            notes=tuple(_notes(path, damage)),
        )
    ]


def _notes(path: Path, damage: Damage) -> list[Note]:
    notes = []
    if damage.lost:
        notes.append(Note(text=f"{path.name}: {damage.lost} damaged records were left out."))
    if damage.torn:
        notes.append(Note(text=f"{path.name} ends in the middle of a record."))
    return notes


def _arguments(text: str) -> dict[str, Any]:
    try:
        parsed = from_json(text.encode())
    except ValueError:
        return {}
    return flat(parsed) if isinstance(parsed, dict) else {}
