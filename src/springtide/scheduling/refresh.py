"""Which paused session's KV is computed again under new weights, and how much of it at a time. Pure.

Asked only while a rank has nothing else to do: no turn is ready and none runs. A piece is small, so a turn that becomes
ready waits for one piece at most; the session stays usable between two pieces.
"""

from collections.abc import Sequence
from typing import NamedTuple

from springtide.core.member import Member
from springtide.ports.engine import StaleKv

CHUNK = 256
"""Tokens of a piece. A few decode steps' worth on the embedded engine and on an accelerator alike."""


class Piece(NamedTuple):
    """`tokens` more of the member's KV are computed again."""

    member: Member
    tokens: int


class Refresh:
    def __init__(self, chunk: int = CHUNK) -> None:
        self._chunk = chunk

    def next(self, stale: Sequence[StaleKv]) -> Piece | None:
        """The oldest KV first, as it is the next to be too old to be kept; then what is begun; then the oldest group.

        Members of a group follow one another, so that all but the first get their prompt by a copy.
        """
        first = min(stale, key=_urgency, default=None)
        return None if first is None else Piece(first.member, min(self._chunk, first.tokens - first.fresh))


def _urgency(session: StaleKv) -> tuple[int, bool, Member]:
    return session.oldest, session.fresh == 0, session.member
