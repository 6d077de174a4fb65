"""SHA-256 and size of every file in a folder: what was written is what is read.

No torch here: the controller's composition reads checkpoints too.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20


def describe_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Relative path to `sha256` and `bytes`, for every file under `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _describe(path) for path in files}


def damaged_files(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Names in `files` that are missing, cannot be read or differ from their description."""
    damaged = []
    for name, expected in files.items():
        try:
            intact = _describe(folder / name) == expected
        except OSError:
            intact = False
        if not intact:
            damaged.append(name)
    return damaged


def _describe(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return {"sha256": digest.hexdigest(), "bytes": size}
