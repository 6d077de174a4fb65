"""Running sequences are moved together where that pays.

Sessions that pause or end leave gaps between those that run, and a wide gap costs one more group of attention calls
in every layer of every step. Before a run of decode steps, sequences outside the fullest stretch of blocks move into
its gaps: into a free block, or by changing places with a session that does not run. Nothing but addresses changes.

Invariant: decisions depend on addresses and lengths alone, so the same history gives the same moves.
"""

from bisect import bisect_left
from collections.abc import Sequence

from springtide.engines.batch import adjacent
from springtide.engines.blocks import Block
from springtide.engines.group import Row
from springtide.engines.residency import ResidentSessions
from springtide.engines.session import Session
from springtide.engines.storage import Storage

GROUP_SECONDS = 40e-6
"""What one more group costs in one layer of one step: a handful of operator calls."""

STEPS_AHEAD = 16
"""Decode steps that a move may count on: about the length of a short turn."""

BYTES_PER_SECOND = {"cpu": 4e9}
BYTES_PER_SECOND_ACCELERATOR = 4e11
"""How fast KV is copied."""


def compact(running: Sequence[Session], residents: ResidentSessions, storage: Storage) -> None:
    """Move sessions among `running` so that fewer groups remain, where the copies cost less than they save."""
    by_length: dict[int, list[tuple[int, Session]]] = {}
    for session in running:
        assert session.block is not None
        by_length.setdefault(session.block.length, []).append((session.block.offset, session))
    for length in sorted(by_length):
        places = sorted(by_length[length], key=lambda place: place[0])
        groups = len(adjacent([Row(Block(offset, length), 0, 1) for offset, _ in places], storage))
        if groups > 1:
            _gather(places, length, groups, residents, storage)


def _gather(
    places: list[tuple[int, Session]], length: int, groups: int, residents: ResidentSessions, storage: Storage
) -> None:
    """Bring the sessions at `places` into one stretch of as many blocks, as far as the blocks there can be had."""
    offsets = [offset for offset, _ in places]
    span = len(offsets) * length
    inside = [bisect_left(offsets, offset + span) - index for index, offset in enumerate(offsets)]
    first = max(range(len(offsets)), key=lambda index: inside[index])
    start, taken = offsets[first], set(offsets[first : first + inside[first]])
    outside = [session for offset, session in places if offset not in taken]
    copied = sum(session.computed for session in outside) * storage.bytes_per_token * len(storage.layers)
    speed = BYTES_PER_SECOND.get(storage.device.type, BYTES_PER_SECOND_ACCELERATOR)
    # A change of places copies twice.
    if 2 * copied / speed > (groups - 1) * len(storage.layers) * GROUP_SECONDS * STEPS_AHEAD:
        return
    gaps = [offset for offset in range(start, start + span, length) if offset not in taken]
    for session, offset in zip(outside, gaps, strict=True):
        residents.place(session, Block(offset, length))
