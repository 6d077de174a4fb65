"""Reference and actor work of the modelled training ranks, from step to step."""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import TypeVar

from springtide.scheduling.pipeliner import Pipeliner, static
from springtide.scheduling.pipelining import Adapter, Mode, Schedule, StageCosts, Unit, schedule

Arrival = tuple[float, tuple[int, ...]]
"""When a group was complete, in seconds, and the tokens of its micro-batches."""

T = TypeVar("T")

PER_RANK = 2
"""Micro-batches of a group per rank, at least: the more, the more evenly ranks end."""


class Pipeline:
    """Training ranks that begin a step before it is full. `modes`: what each step has run.

    `setting` names one mode for all steps, or "adaptive": then a step's mode is decided when its work can begin, with
    what is there by then and how work has arrived before, by the costs that are `expected`. UsageError for a mode that
    `ranks` ranks cannot run.
    """

    def __init__(self, setting: str, *, ranks: int, costs: StageCosts, expected: Callable[[], StageCosts]) -> None:
        self._ranks = ranks
        self.costs = costs
        self._expected = expected
        self._static = None if setting == "adaptive" else static(setting, ranks)
        if costs.reference == 0:
            self._static = Adapter()
        self._pipeliner = Pipeliner()
        self._holding = 0
        self._free = 0.0
        self.modes: list[Mode] = []

    def occupy(self, until: float) -> None:
        """The ranks do something else until then."""
        self._free = max(self._free, until)

    def resize(self, ranks: int, *, until: float | None = None) -> None:
        """From the next step on. What the ranks hold is lost. `until`: they have been broken off then."""
        self._ranks, self._holding = ranks, 0
        self._free = self._free if until is None else until

    def step(self, arrivals: Iterable[Arrival], updates: int = 1) -> Schedule:
        """All of a step's work, from when the ranks are free and the first group is there.

        Of `updates` each has as many groups, in order of arrival, and begins when the one before has ended.
        """
        groups = sorted(arrivals)
        parts: list[Schedule] = []
        for part in divided(groups, updates):
            parts.append(self._update(part, parts[-1].finish if parts else self._free))
        passes = tuple(done for part in parts for done in part.passes)
        return replace(parts[-1], start=parts[0].start, passes=passes)

    def _update(self, groups: list[Arrival], free: float) -> Schedule:
        begin = max(free, groups[0][0]) if groups else free
        mode = self._decide(groups, begin) if self._static is None else self._static
        units = [Unit(ready, tokens) for ready, sizes in groups for tokens in sizes]
        done = schedule(mode, units, self._ranks, self.costs, begin, holding=self._holding)
        self.modes.append(mode)
        self._holding = done.holding
        return done

    def _decide(self, groups: list[Arrival], begin: float) -> Mode:
        here = [sizes for ready, sizes in groups if ready <= begin]
        late = [ready for ready, _ in groups if ready > begin]
        known = [Unit(ready, tokens) for ready, sizes in groups if ready <= begin for tokens in sizes]
        count = round(fmean(len(sizes) for sizes in here)) if here else 0
        usual = (round(fmean(unit.tokens for unit in known)),) * count if known else ()
        decided = self._pipeliner.decide(
            known, len(late), usual, self._ranks, self._expected(), begin, holding=self._holding
        )
        self._pipeliner = decided.observe(begin, late)
        assert decided.mode is not None
        return decided.mode


def micro_batches(lengths: Iterable[int], *, ranks: int, most: int) -> tuple[int, ...]:
    """Tokens of the micro-batches that a group's sequences make: of about the same size, PER_RANK per rank at least, so
    that the last group to come keeps all ranks busy. No more than `most`, unless one sequence alone has more."""
    longest_first = sorted(lengths, reverse=True)
    number = max(1, min(len(longest_first), max(PER_RANK * ranks, math.ceil(sum(longest_first) / most))))
    while True:
        loads = dealt(longest_first, number)
        if max(loads) <= max(most, longest_first[0] if longest_first else 0) or number >= len(longest_first):
            return tuple(sorted((load for load in loads if load), reverse=True))
        number += 1


def divided(groups: Sequence[T], updates: int) -> list[list[T]]:
    """In `updates` parts of about the same size, in order; none is empty unless all is."""
    updates = max(1, min(updates, len(groups)))
    edges = [len(groups) * number // updates for number in range(updates + 1)]
    return [list(groups[begin:end]) for begin, end in pairwise(edges)]


def dealt(lengths: Iterable[int], ranks: int) -> list[int]:
    """Tokens of each rank when each sequence, longest first, goes to the least busy one."""
    loads = [0] * ranks
    for length in sorted(lengths, reverse=True):
        heapq.heapreplace(loads, loads[0] + length)
    return loads
