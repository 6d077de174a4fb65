"""SHA-256 and size of every file in a folder, in a JSON file that carries its own hash: what is read is what was
written.

No torch here: the controller's composition reads checkpoints too.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20
_SEAL = "seal"


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


def write_sealed(path: Path, fields: Mapping[str, Any]) -> None:
    """Write `fields` as JSON with a hash over them."""
    path.write_text(json.dumps({**fields, _SEAL: _hash_fields(fields)}, indent=2) + "\n", encoding="utf-8")


def read_sealed(path: Path) -> dict[str, Any]:
    """The inverse of `write_sealed`. OSError or ValueError when the file is missing or not as it was written."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(fields, dict) or fields.pop(_SEAL, None) != _hash_fields(fields):
        raise ValueError(f"{path.name} is not what was written")
    return fields


def _hash_fields(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _describe(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return {"sha256": digest.hexdigest(), "bytes": size}
