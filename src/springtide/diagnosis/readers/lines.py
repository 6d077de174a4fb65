"""Lines of a console, as bytes, in bounded memory: a carriage return ends a line as well, colours are kept."""

from collections.abc import Iterator
from pathlib import Path

CHUNK = 1 << 22
"""Bytes read at a time, and the longest line: what is longer is cut."""

BLOCK = 1 << 18
"""Bytes of lines that are looked at together."""


def lines(path: Path) -> Iterator[bytes]:
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            parts = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
            rest = parts.pop()
            if len(rest) >= CHUNK:
                parts.append(rest)
                rest = b""
            yield from parts
    if rest:
        yield rest


def blocks(path: Path) -> Iterator[bytes]:
    """The same lines in blocks of many, each with its line feed."""
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(BLOCK):
            data = (rest + chunk).replace(b"\r", b"\n")
            end = data.rfind(b"\n") + 1 or (len(data) if len(data) >= CHUNK else 0)
            rest = data[end:]
            if end:
                yield data[:end]
    if rest:
        yield rest
