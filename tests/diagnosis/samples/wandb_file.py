"""Writes a `.wandb` file: protocol buffers in a log of 32 KiB blocks, each piece with its checksum."""

import json
import struct
import zlib

BLOCK, HEADER = 32768, 7
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def message(*fields):
    """(number, int or bytes or str) each."""
    out = b""
    for place, value in fields:
        if isinstance(value, int):
            out += varint(place << 3) + varint(value)
        else:
            body = value.encode() if isinstance(value, str) else value
            out += varint(place << 3 | 2) + varint(len(body)) + body
    return out


def items(values, *, nested=False):
    return [(1, message((2 if nested else 1, key), (16, json.dumps(value)))) for key, value in values.items()]


def history(step, values, *, nested=False):
    return message((2, message(*items(values, nested=nested), (2, message((1, step))))))


def config(values):
    return message((5, message(*items(values))))


def summary(values):
    return message((3, message(*items(values))))


def exit_code(code):
    return message((18, message((1, code))))


def wandb_file(records):
    out = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        left = BLOCK - len(out) % BLOCK
        if left < HEADER:
            out += bytes(left)
            left = BLOCK
        if len(record) + HEADER <= left:
            out += piece(record, WHOLE)
            continue
        room = left - HEADER
        out += piece(record[:room], FIRST)
        rest = record[room:]
        while len(rest) > BLOCK - HEADER:
            out += piece(rest[: BLOCK - HEADER], MIDDLE)
            rest = rest[BLOCK - HEADER :]
        out += piece(rest, LAST)
    return bytes(out)


def piece(data, kind):
    return struct.pack("<IHB", zlib.crc32(data, zlib.crc32(bytes((kind,)))), len(data), kind) + data
