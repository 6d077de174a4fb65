"""The beginning of a file, by which readers know it."""

from functools import lru_cache
from pathlib import Path

HEAD = 65536
"""Bytes that are looked at."""


def head(path: Path) -> bytes:
    """The first bytes of a file; nothing of a folder, or of what is neither."""
    if not path.is_file():
        return b""
    state = path.stat()
    return _head(str(path), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _head(path: str, modified: int, size: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(HEAD)


def is_text(data: bytes) -> bool:
    """Hardly a control character. A crash may leave zero bytes in a log, which is still one."""
    controls = len(data.translate(None, bytes(range(32, 256)) + b"\t\n\r\x1b\x08"))
    return controls <= len(data) // 100
