"""The `.wandb` file of a W&B run: every record that its client sent, so the whole history.

The file is a log in blocks of 32 KiB. A record is cut into pieces that fit; each piece has a checksum, its length, and
whether it is the whole record or its first, middle or last part. Records are protocol buffers, of which the few fields
that hold history, settings and console lines are decoded. Where a piece makes no sense, reading goes on at the next
block.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from springtide.diagnosis.readers.axis import Entry
from springtide.diagnosis.readers.event import fields
from springtide.diagnosis.readers.values import from_json, number, numbers

MAGIC = b":W&B"
HEADER = 7
BLOCK = 32768
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
HISTORY, SUMMARY, CONFIG, RUN, EXIT = 2, 3, 5, 17, 18
KEY, NESTED_KEY, VALUE = 1, 2, 16
LARGEST = 1 << 26
"""Bytes of a record; a longer one is damage."""


@dataclass
class Records:
    """`damaged`: pieces that made no sense."""

    history: list[Entry] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    damaged: int = 0


def read_records(path: Path) -> Records:
    found = Records()
    names: dict[str, str] = {}
    for record in _records(path.read_bytes(), found):
        for number_, _, value in fields(record):
            if isinstance(value, bytes):
                _take(number_, value, found, names)
    return found


def _take(kind: int, body: bytes, found: Records, names: dict[str, str]) -> None:
    if kind == HISTORY:
        found.history.append(_history(body, names))
    elif kind == CONFIG:
        found.config |= _items(body, 1)
    elif kind == SUMMARY:
        found.summary |= _items(body, 1)
    elif kind == RUN:
        for inner, _, value in fields(body):
            if inner == 4 and isinstance(value, bytes):
                found.config |= _items(value, 1)
    elif kind == EXIT:
        codes = [value for inner, _, value in fields(body) if inner == 1 and isinstance(value, int)]
        found.exit_code = codes[0] if codes else 0


def _history(body: bytes, names: dict[str, str]) -> Entry:
    values = {names.setdefault(key, key): value for key, value in numbers(_items(body, 1)).items()}
    steps = [
        count
        for inner, _, value in fields(body)
        if inner == 2 and isinstance(value, bytes)
        for kind, _, count in fields(value)
        if kind == 1 and isinstance(count, int)
    ]
    return Entry(values, steps[0] if steps and steps[0] < 1 << 53 else None)


def _items(body: bytes, place: int) -> dict[str, Any]:
    found = {}
    for kind, _, item in fields(body):
        if kind != place or not isinstance(item, bytes):
            continue
        key, nested, text = "", [], b""
        for inner, _, value in fields(item):
            if isinstance(value, bytes):
                if inner == KEY:
                    key = value.decode("utf-8", "replace")
                elif inner == NESTED_KEY:
                    nested.append(value.decode("utf-8", "replace"))
                elif inner == VALUE:
                    text = value
        name = key or "/".join(nested)
        if name and text:
            found[name] = _value(text)
    return found


def _value(text: bytes) -> Any:
    plain = number(text.decode("utf-8", "replace")) if len(text) < 40 else None
    if plain is not None:
        return plain
    try:
        return from_json(text)
    except ValueError:
        return None


def _records(data: bytes, found: Records) -> Iterator[bytes]:
    parts: list[bytes] = []
    checked: bool | None = None
    position = HEADER if data[:4] == MAGIC else 0
    while position + HEADER <= len(data):
        left = BLOCK - position % BLOCK
        if left < HEADER:
            position += left
            continue
        crc, length, kind = struct.unpack_from("<IHB", data, position)
        piece = data[position + HEADER : position + HEADER + length]
        if kind == 0 and length == 0:
            position += left
            continue
        sound = WHOLE <= kind <= LAST and length <= left - HEADER and len(piece) == length
        if sound:
            matches = zlib.crc32(piece, zlib.crc32(bytes((kind,)))) == crc
            checked = matches if checked is None else checked
            sound = matches or not checked
        if not sound:
            found.damaged += 1
            parts.clear()
            position += left
            continue
        position += HEADER + length
        if kind in (WHOLE, FIRST):
            parts.clear()
        parts.append(piece)
        if kind in (WHOLE, LAST):
            yield b"".join(parts)
            parts.clear()
        elif sum(map(len, parts)) > LARGEST:
            parts.clear()
