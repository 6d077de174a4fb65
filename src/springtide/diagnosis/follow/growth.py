"""Has anything been appended? Sizes and times of the files under a path, without reading them."""

from collections.abc import Iterator
from contextlib import suppress
from os import scandir
from pathlib import Path

MOST = 20_000
"""Files that are looked at."""

IGNORED = (
    "status.json",
    "status.tmp",
    "lock",
    "diagnosis.jsonl",
    "journal.sqlite",
    "journal.sqlite-wal",
    "journal.sqlite-shm",
)
"""Files of our own runs that change without a step."""

UNCHANGING = ("checkpoints", "model", ".git", "node_modules", "__pycache__")
"""Folders that hold no logs."""

Mark = tuple[tuple[str, int, int], ...]
"""(file, bytes, time of change) of each, in order."""


def mark_of(path: Path) -> Mark:
    """Empty if there is nothing yet."""
    if path.is_dir():
        return tuple(sorted(_files(path)))
    with suppress(OSError):
        found = path.stat()
        return ((str(path), found.st_size, found.st_mtime_ns),)
    return ()


def _files(path: Path) -> Iterator[tuple[str, int, int]]:
    waiting = [str(path)]
    seen = 0
    while waiting and seen < MOST:
        with suppress(OSError), scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting += [] if entry.name in UNCHANGING else [entry.path]
                    elif entry.name not in IGNORED:
                        found = entry.stat()
                        seen += 1
                        yield entry.path, found.st_size, found.st_mtime_ns
