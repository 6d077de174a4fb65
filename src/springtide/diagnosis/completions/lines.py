"""Dumps in files of JSON: one object to a line, or a list of them, at any size. What is torn or garbage is passed over
and counted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from springtide.diagnosis.completions.content import Row

LONGEST = 64 * 2**20
"""Bytes of a line that is still read."""

WHOLE = 512 * 2**20
"""Bytes of a file that is one JSON value that are still read."""


class Lines:
    """The rows of a file, each with its place. After iterating, `bad` says how many lines were not readable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.bad = 0

    def __iter__(self) -> Iterator[tuple[str, Row]]:
        with self._path.open("rb") as file:
            if file.read(64).lstrip()[:1] == b"[":
                yield from self._whole()
                return
            file.seek(0)
            number = 0
            while line := file.readline(LONGEST + 1):
                number += 1
                if not line.strip():
                    continue
                row = decoded(line) if len(line) <= LONGEST else None
                if isinstance(row, dict):
                    yield f"{self._path.name}:{number}", row
                else:
                    self.bad += 1

    def _whole(self) -> Iterator[tuple[str, Row]]:
        value = decoded(self._path.read_bytes()) if self._path.stat().st_size <= WHOLE else None
        if not isinstance(value, list):
            self.bad += 1
            return
        for number, row in enumerate(value):
            if isinstance(row, dict):
                yield f"{self._path.name}[{number}]", row
            else:
                self.bad += 1


def decoded(text: bytes) -> Any:
    """The JSON value; None if it is none. Python's own writer also writes NaN, which is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def table_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Rows of a Parquet file. ModuleNotFoundError without pyarrow, OSError or ValueError if it is none."""
    from pyarrow import parquet  # type: ignore[import-not-found,unused-ignore]

    number = 0
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=256):
            for row in batch.to_pylist():
                yield f"{path.name}[{number}]", row
                number += 1
