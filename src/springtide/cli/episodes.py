"""Reading episodes out of a run's journal, also while the run is at work."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from springtide.core.errors import UsageError
from springtide.core.member import Member, Purpose
from springtide.core.trajectory import Trajectory
from springtide.runtime.journal import open_journal_reader, read_trajectory, reading
from springtide.telemetry.run_folder import RunFolder

EPISODES = (
    "(SELECT * FROM trajectories AS one WHERE purpose <> 'train' OR NOT EXISTS (SELECT 1 FROM trajectories AS later"
    " WHERE later.purpose = one.purpose AND later.grp = one.grp AND later.slot = one.slot"
    " AND later.attempt = one.attempt AND later.id > one.id))"
)
"""Each episode once. A training episode is journalled again when its group is graded, and played again when its step
was killed: the last word counts. Evaluations of several versions have episodes of the same name."""

MOST = 2**63 - 1
"""The largest number that SQLite knows."""


class EpisodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """An episode in a list. `reward` is None where it is invalid, `version` the oldest that it was sampled from."""

    id: str
    reward: float | None
    ending: str
    turns: int
    tokens: int
    version: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A run's episodes: how (group, slot) pairs ended, and the newest episodes, newest first."""

    ends: dict[str, int]
    episodes: int
    invalid: int
    newest: tuple[EpisodeRow, ...]


@contextmanager
def open_episodes(folder: RunFolder) -> Iterator[sqlite3.Connection]:
    """The journal, read-only. UsageError if the run has none yet, RunDamagedError if it cannot be read."""
    if not folder.journal.exists():
        raise UsageError(f"Run {folder.id} has no episodes yet: it has not begun to train.")
    connection = open_journal_reader(folder.journal)
    try:
        with reading(folder.journal):
            yield connection
    finally:
        connection.close()


def overview(connection: sqlite3.Connection, *, newest: int) -> Overview:
    ends = connection.execute("SELECT end, count(*) FROM ends GROUP BY end ORDER BY end").fetchall()
    total, invalid = connection.execute(f"SELECT count(*), sum(reward IS NULL) FROM {EPISODES}").fetchone()
    rows = connection.execute(
        f"SELECT purpose, grp, slot, attempt, reward, ending, turns, tokens, version FROM {EPISODES}"
        " ORDER BY id DESC LIMIT ?",
        (min(newest, MOST),),
    )
    return Overview(
        ends=dict(ends),
        episodes=total,
        invalid=invalid or 0,
        newest=tuple(
            EpisodeRow(
                id=str(Member(Purpose(purpose), group, slot, attempt)),
                reward=reward,
                ending=ending,
                turns=turns,
                tokens=tokens,
                version=version,
            )
            for purpose, group, slot, attempt, reward, ending, turns, tokens, version in rows
        ),
    )


def episode(connection: sqlite3.Connection, text: str) -> Trajectory:
    """The episode of that id; without an attempt, the last one. UsageError if there is none."""
    try:
        member = Member.parse(text)
    except ValueError as error:
        raise UsageError(f"--trajectory: {error}") from None
    attempt = member.attempt if text.count(".") == 2 else None
    try:
        return read_trajectory(connection, member.purpose, member.group, member.slot, attempt)
    except (KeyError, OverflowError):  # no episode has a number that SQLite could not store
        some = overview(connection, newest=1).newest
        hint = f"the newest is {some[0].id}" if some else "there are none yet"
        raise UsageError(f"--trajectory {text}: the run has no such finished episode; {hint}.") from None
