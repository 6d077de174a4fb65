"""The run's memory: what was decided and what happened, durable before it takes effect."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from springtide.core.group import End
from springtide.core.trajectory import Trajectory


class EndRecord(msgspec.Struct, frozen=True):
    """The one ending of an issued (group, slot)."""

    group: int
    slot: int
    end: End
    step: int
    reason: str


class Entry(msgspec.Struct, frozen=True):
    """One line of the journal. `body` is the encoded event or command; `kind` its tag."""

    kind: str
    body: bytes
    time: float


class Journal(Protocol):
    """Append-only. Driven from one lane."""

    def append(
        self, *, entries: Sequence[Entry], trajectories: Sequence[Trajectory] = (), ends: Sequence[EndRecord] = ()
    ) -> None:
        """All or nothing, durable on return. StorageFullError when the disk is full; nothing is lost then.

        A second end for the same (group, slot) is an assertion failure: it would break exactly-once.
        """
        ...

    def entries(self) -> Iterator[Entry]:
        """All entries in order."""
        ...

    def trajectory(self, group: int, slot: int) -> Trajectory:
        """The last trajectory journalled for a training slot. KeyError if there is none."""
        ...

    def ends(self) -> Iterator[EndRecord]: ...

    def close(self) -> None: ...
