"""A recorded trace: what its episodes looked like, in the order in which they were recorded.

Readers turn each format into this; `recorded.py` plays it. Whatever a format does not say stands in `assumptions`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from springtide.core.errors import UsageError
from springtide.simulation.script import Turn

TURNS_MAX = 500_000
"""Turns that are read of a trace, so that memory is bounded."""


class Episode(NamedTuple):
    """Tokens and seconds, as in `Script`."""

    turns: tuple[Turn, ...]
    trained: tuple[int, ...]
    common: int = 0
    """Leading tokens of its first context that the episode before it in the trace begins with too."""
    reset: float = 0.0
    grade: float = 0.0
    reward: float = 1.0
    failed: bool = False


Slot = tuple[Episode, ...]
"""The attempts at one place in a group: all but the last have failed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """`sizes` has how many consecutive slots each group has; empty where the format knows no groups."""

    name: str
    format: str
    slots: tuple[Slot, ...]
    assumptions: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    groups_per_step: int | None = None
    """Of the recorded run."""

    def episodes(self) -> Iterator[Episode]:
        return (episode for slot in self.slots for episode in slot)

    @cached_property
    def longest(self) -> int:
        """Most tokens of context and output at a turn."""
        return max(turn.context + turn.output for episode in self.episodes() for turn in episode.turns)

    @cached_property
    def begins(self) -> tuple[int, ...]:
        """Each group's first slot."""
        return (0, *accumulate(self.sizes[:-1]))

    @cached_property
    def shared(self) -> int:
        """Leading tokens that all episodes begin with: neighbours have at least that in common."""
        first, *others = self.episodes()
        return min((min(episode.common, episode.turns[0].context) for episode in others), default=first.common)

    def within(self, limit: int) -> "Trace":
        """Episodes end before the turn that would be longer than `limit`. UsageError if nothing is left."""
        parts = [tuple(_cut(episode, limit) for episode in slot) for slot in self.slots]
        kept = [tuple(episode for episode in slot if episode.turns) for slot in parts]
        gone = sum(not slot for slot in kept)
        shorter = sum(a.turns != b.turns for a, b in zip(self.episodes(), (e for s in parts for e in s), strict=True))
        if gone == len(kept):
            raise UsageError(f"{self.name}: no episode has a turn within {limit} tokens; give a larger --context.")
        if not shorter:
            return self
        sizes, place = [], 0
        for size in self.sizes:
            sizes.append(sum(bool(slot) for slot in kept[place : place + size]))
            place += size
        told = f"{shorter} of {sum(map(len, self.slots))} episodes end before a turn of more than {limit} tokens"
        return replace(
            self,
            slots=tuple(slot for slot in kept if slot),
            sizes=tuple(size for size in sizes if size),
            assumptions=(*self.assumptions, f"{told}, {gone} of them before their first." if gone else f"{told}."),
        )


def _cut(episode: Episode, limit: int) -> Episode:
    fitting = next((n for n, turn in enumerate(episode.turns) if turn.context + turn.output > limit), None)
    if fitting is None:
        return episode
    turns = episode.turns[:fitting]
    return episode._replace(turns=turns, trained=sequences(turns), failed=False)


def sequences(turns: tuple[Turn, ...], *, exact: bool = False) -> tuple[int, ...]:
    """Lengths of what a trainer has to read of these turns.

    A new sequence begins where a context is shorter than the one before; or, if `exact`, wherever the tokens before are
    not all reused.
    """
    lengths = [turn.context + turn.output for turn in turns]
    ends = [
        following.reusable < length if exact else following.context < turn.context
        for turn, following, length in zip(turns, turns[1:], lengths, strict=False)
    ]
    return tuple(length for length, last in zip(lengths, (*ends, True), strict=False) if last)
