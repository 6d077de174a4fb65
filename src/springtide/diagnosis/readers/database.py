"""SQLite files of others, read and never written to.

SQLite puts helper files beside a database that it opens, even to read it. So one is opened as immutable; where there is
a write-ahead log, whose rows an immutable reader does not see, a copy of both is opened instead.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

HEADER = b"SQLite format 3\0"

DAMAGED = (sqlite3.Error, OSError, UnicodeDecodeError)
"""What a damaged file raises; the last where its schema does not even make a message."""


def is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(HEADER)) == HEADER
    except OSError:
        return False


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    log = path.with_name(f"{path.name}-wal")
    if not log.is_file() or log.stat().st_size == 0:
        with closing(_connect(path, "immutable=1")) as connection:
            yield connection
        return
    with tempfile.TemporaryDirectory(prefix="springtide-") as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy.with_name("copy.db-wal"))
        with closing(_connect(copy, "mode=rw")) as connection:
            yield connection


def _connect(path: Path, options: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{options}", uri=True)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Of a table by its name, which is one of ours; empty where there is no such table."""
    return {str(row[1]).lower() for row in connection.execute(f"PRAGMA table_info({table})")}
