"""The journal in SQLite: what a killed run is continued from, and what a second program checks.

One transaction per append, write-ahead log with full synchronisation: on return the entries survive a power cut.
Trajectories are compressed with zlib.
"""

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from springtide.core.errors import RunDamagedError, SpringtideError, StorageFullError, UsageError
from springtide.core.group import End
from springtide.core.member import Purpose
from springtide.core.trajectory import Trajectory
from springtide.ports.journal import EndRecord, Entry

SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    time REAL NOT NULL, type TEXT NOT NULL, tag TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS ends (
    grp INTEGER NOT NULL, slot INTEGER NOT NULL, end TEXT NOT NULL, step INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (grp, slot));
CREATE TABLE IF NOT EXISTS trajectories (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    purpose TEXT NOT NULL, grp INTEGER NOT NULL, slot INTEGER NOT NULL, attempt INTEGER NOT NULL,
    version INTEGER NOT NULL, reward REAL, ending TEXT NOT NULL, turns INTEGER NOT NULL, tokens INTEGER NOT NULL,
    body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS trajectories_by_member ON trajectories (purpose, grp, slot, attempt);
"""


class SqliteJournal:
    """Implements the Journal port. Writing belongs to one lane; `open_journal_reader` gives other processes a view."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = _connect(path, read_only=False)
        self._encoder = msgspec.msgpack.Encoder()

    def append(
        self, *, entries: Sequence[Entry], trajectories: Sequence[Trajectory] = (), ends: Sequence[EndRecord] = ()
    ) -> None:
        try:
            with self._connection:
                self._connection.executemany(
                    "INSERT INTO entries (time, type, tag, body) VALUES (?, ?, ?, ?)",
                    [(entry.time, entry.kind, _tag(entry.body), entry.body) for entry in entries],
                )
                self._connection.executemany(
                    "INSERT INTO trajectories"
                    " (purpose, grp, slot, attempt, version, reward, ending, turns, tokens, body)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [self._row(trajectory) for trajectory in trajectories],
                )
                self._connection.executemany(
                    "INSERT INTO ends (grp, slot, end, step, reason) VALUES (?, ?, ?, ?, ?)",
                    [(record.group, record.slot, record.end.value, record.step, record.reason) for record in ends],
                )
        except sqlite3.IntegrityError as error:
            raise AssertionError(f"a (group, slot) was ended twice: {error}") from error
        except sqlite3.DatabaseError as error:
            raise _explained(self._path, error) from error

    def _row(self, trajectory: Trajectory) -> tuple[object, ...]:
        member, outcome = trajectory.member, trajectory.outcome
        ending = outcome.ending.value if trajectory.reward is not None else f"invalid: {outcome.detail}"  # type: ignore[union-attr]
        version = trajectory.oldest_version
        return (
            member.purpose.value,
            member.group,
            member.slot,
            member.attempt,
            -1 if version is None else version,
            trajectory.reward,
            ending,
            trajectory.turns,
            trajectory.trained_tokens,
            zlib.compress(self._encoder.encode(trajectory), 1),
        )

    def entries(self) -> Iterator[Entry]:
        with reading(self._path):
            for kind, body, time in self._connection.execute("SELECT type, body, time FROM entries ORDER BY seq"):
                yield Entry(kind, body, time)

    def trajectory(self, group: int, slot: int) -> Trajectory:
        with reading(self._path):
            return read_trajectory(self._connection, Purpose.TRAIN, group, slot)

    def ends(self) -> Iterator[EndRecord]:
        for group, slot, end, step, reason in self._connection.execute(
            "SELECT grp, slot, end, step, reason FROM ends ORDER BY grp, slot"
        ):
            yield EndRecord(group, slot, End(end), step, reason)

    def close(self) -> None:
        self._connection.close()


def _tag(body: bytes) -> str:
    return str(msgspec.json.decode(body, type=dict)["type"])


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    try:
        mode = "ro" if read_only else "rwc"
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode={mode}", uri=True, check_same_thread=False, timeout=30
        )
        if not read_only:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.executescript(SCHEMA)
        else:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        raise _explained(path, error) from error
    return connection


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """RunDamagedError for whatever a damaged journal makes of reading it, another error where it is not damaged."""
    try:
        yield
    except (sqlite3.DatabaseError, zlib.error, msgspec.DecodeError) as error:
        raise _explained(path, error) from error


def _explained(path: Path, error: Exception) -> SpringtideError:
    """What became of the journal, in SQLite's own words for it, and what to do."""
    said = str(error) if isinstance(error, sqlite3.OperationalError) else ""
    if "is full" in said:
        return StorageFullError(
            f"The disk is full while writing {path}; nothing is lost: free some space and resume the run."
        )
    if "locked" in said:
        return SpringtideError(f"The journal {path} is held by another program: close that one and resume the run.")
    if "readonly" in said or "unable to open" in said:
        return UsageError(
            f"The journal {path} cannot be opened or written ({said}): give yourself the permission, on the file and "
            "on its folder."
        )
    if "disk I/O error" in said:
        return SpringtideError(
            f"The journal {path} could not be read or written ({said}): see what the disk reports, and resume the run."
        )
    return RunDamagedError(
        f"The journal {path} cannot be read ({error}); restore it from a copy, or branch from a checkpoint with --from."
    )


def open_journal_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection to a journal that may be in use. RunDamagedError if it is not a journal, UsageError if it
    may not be read."""
    return _connect(path, read_only=True)


def read_trajectory(
    connection: sqlite3.Connection, purpose: Purpose, group: int, slot: int, attempt: int | None = None
) -> Trajectory:
    """The last trajectory journalled for a slot, or for one attempt at it. KeyError if there is none."""
    row = connection.execute(
        "SELECT body FROM trajectories WHERE purpose = ? AND grp = ? AND slot = ? AND attempt = ifnull(?, attempt)"
        " ORDER BY id DESC LIMIT 1",
        (purpose.value, group, slot, attempt),
    ).fetchone()
    if row is None:
        raise KeyError(f"{purpose.value} {group}.{slot}")
    return msgspec.msgpack.decode(zlib.decompress(row[0]), type=Trajectory)
