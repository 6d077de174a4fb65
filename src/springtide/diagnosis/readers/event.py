"""Records of a TensorBoard event file: the frames around them, and the few fields of them that hold scalars.

A file is a sequence of frames: length, checksum of the length, payload, checksum of the payload. A frame whose length
does not match its checksum says nothing of where the next one begins, so that is looked for: eight bytes whose checksum
follows them. Of the payload (a protocol buffer) only what is asked for is decoded; all else is stepped over.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

Field = tuple[int, int, int | bytes]
"""Number, wire type, and the value: an integer for a varint, raw bytes for all else."""

MAX_CHECKED = 1 << 16
"""Payload bytes up to which its checksum is compared: scalars are far smaller, images and histograms are not read."""
MAX_PAYLOAD = 1 << 31
MAX_TEXT = 1 << 20


def _table() -> tuple[int, ...]:
    entries = []
    for index in range(256):
        crc = index
        for _ in range(8):
            crc = (crc >> 1) ^ 0x82F63B78 if crc & 1 else crc >> 1
        entries.append(crc)
    return tuple(entries)


_CRC = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and offset, as TFRecord stores it."""
    crc, table = 0xFFFFFFFF, _CRC
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@dataclass
class Damage:
    """What could not be read: places where frames are broken, payloads that do not match, and a torn end."""

    lost: int = 0
    torn: bool = False


def payloads(data: bytes, damage: Damage) -> Iterator[bytes]:
    position, end = 0, len(data)
    while position + 12 <= end:
        header = data[position : position + 8]
        (length,) = struct.unpack("<Q", header)
        (crc,) = struct.unpack_from("<I", data, position + 8)
        if length > MAX_PAYLOAD or masked_crc(header) != crc:
            damage.lost += 1
            position = _next_frame(data, position + 1)
            continue
        if position + 16 + length > end:
            damage.torn = True
            return
        payload = data[position + 12 : position + 12 + length]
        (crc,) = struct.unpack_from("<I", data, position + 12 + length)
        if length <= MAX_CHECKED and masked_crc(payload) != crc:
            damage.lost += 1
        else:
            yield payload
        position += 16 + length
    damage.torn = damage.torn or position < end


def _next_frame(data: bytes, start: int) -> int:
    """Where the next header with the right checksum is: the upper half of a length is zeros."""
    zeros = data.find(b"\0\0\0\0", start + 4)
    while zeros >= 0:
        if zeros + 8 <= len(data):
            header = data[zeros - 4 : zeros + 4]
            if masked_crc(header) == struct.unpack_from("<I", data, zeros + 4)[0]:
                return zeros - 4
        zeros = data.find(b"\0\0\0\0", zeros + 1)
    return len(data)


def fields(data: bytes) -> Iterator[Field]:
    """Of one message; ends where the bytes make no sense."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        wire = tag & 7
        if wire == 0:
            value, position = _varint(data, position)
            if position > end:
                return
            yield tag >> 3, wire, value
            continue
        if wire == 1:
            size = 8
        elif wire == 5:
            size = 4
        elif wire == 2:
            size, position = _varint(data, position)
        else:
            return
        if position + size > end:
            return
        yield tag >> 3, wire, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The number and where the next field begins; beyond the end if it is cut off."""
    result = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
    return result, len(data) + 1


@dataclass
class Event:
    """`scalars` in the order they were written; `texts` by tag."""

    time: float | None = None
    step: int = 0
    scalars: list[tuple[str, float]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)


def decode(payload: bytes) -> Event:
    event = Event()
    for number, wire, value in fields(payload):
        if number == 1 and wire == 1 and isinstance(value, bytes):
            event.time = struct.unpack("<d", value)[0]
        elif number == 2 and isinstance(value, int):
            event.step = _signed(value)
        elif number == 5 and isinstance(value, bytes):
            for inner, _, summary in fields(value):
                if inner == 1 and isinstance(summary, bytes):
                    _summary_value(summary, event)
    return event


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _summary_value(data: bytes, event: Event) -> None:
    tag = ""
    scalar: float | None = None
    text: bytes | None = None
    for number, wire, value in fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            tag = value.decode("utf-8", "replace")
        elif number == 2 and wire == 5:
            scalar = struct.unpack("<f", value)[0]
        elif number == 8:
            scalar, text = _tensor(value)
    if scalar is not None:
        event.scalars.append((tag, scalar))
    elif text is not None and len(text) <= MAX_TEXT:
        event.texts[tag] = text.decode("utf-8", "replace")


_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
"""Of tensor contents, by the tensor's type: float, double, 32 and 64 bits."""
_FIELDS = {5: "<f", 6: "<d"}
"""Of values that are listed instead, by field."""


def _tensor(data: bytes) -> tuple[float | None, bytes | None]:
    """The one number or the first string in a tensor; a tensor of several numbers is no scalar."""
    dtype = 0
    for number, wire, value in fields(data):
        if number == 1 and isinstance(value, int):
            dtype = value
        elif isinstance(value, int):
            if number in (7, 10):
                return float(_signed(value)), None
        elif number == 8 and wire == 2:
            return None, value
        else:
            layout = _FORMATS.get(dtype, "") if number == 4 else _FIELDS.get(number, "")
            if layout and len(value) == struct.calcsize(layout):
                return float(struct.unpack(layout, value)[0]), None
            if number in (7, 10) and 0 < len(value) <= 10:
                packed, after = _varint(value, 0)
                return (float(_signed(packed)), None) if after == len(value) else (None, None)
    return None, None
