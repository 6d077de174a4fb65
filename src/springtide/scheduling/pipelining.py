"""Reference and actor passes of one train step on data-parallel ranks: who does what when, as an event recursion.

The reference policy is frozen and its log-probs are read by the backward pass alone. So its passes may run ahead, on
other ranks, or in turns with the actor's on the same ranks; what is best depends on how work arrives. Pure: a mode and
ready times give one schedule. Every mode trains the same units, each with one reference and one actor pass, so that the
gradient, a sum over units, is the same.

A rank holds one model at a time, the actor or the reference; changing it takes one swap. Decisions within a schedule
use nothing that is not known at their time, except how many units the step has.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from springtide.scheduling.costs import ServiceCosts
from springtide.scheduling.ready_pool import ReadyPool

Stage = Literal["reference", "forward", "backward", "swap"]

BINS = {"reference": "reference", "forward": "actor", "backward": "actor", "swap": "swap"}
"""Of the ledger, by stage."""


class Unit(NamedTuple):
    """A micro-batch. `ready`: seconds, when its last episode was complete."""

    ready: float
    tokens: int


@dataclass(frozen=True)
class StageCosts:
    """Seconds per token and rank; `swap`: seconds to move one model's weights, one direction."""

    reference: float
    forward: float
    backward: float
    swap: float

    @classmethod
    def of(cls, costs: ServiceCosts, *, reference: bool) -> "StageCosts":
        """Without a reference there is nothing to compute for it, nor to swap."""
        return cls(
            reference=costs.reference_token if reference else 0.0,
            forward=costs.forward_token,
            backward=costs.backward_token,
            swap=costs.swap if reference else 0.0,
        )

    @property
    def actor(self) -> float:
        return self.forward + self.backward


@dataclass(frozen=True)
class FullBatch:
    """All ranks wait for the whole batch; the reference is swapped in for all of it, then the actor."""


@dataclass(frozen=True)
class Swap:
    """C_k: each rank takes up to `units` ready units, swaps the reference in, scores them, swaps back and trains them.

    `interval`: expected seconds between units. A rank whose cycle is not full waits for another unit as long as that is
    expected to cost the idle ranks less than the two swaps of a further cycle.
    """

    units: int
    interval: float = field(default=math.inf, compare=False)


@dataclass(frozen=True)
class Split:
    """S(m): `ranks` ranks hold the reference for good, the others the actor."""

    ranks: int


@dataclass(frozen=True)
class Ahead:
    """P: `ranks` ranks compute the reference's log-probs as units get ready; once none is left they swap to the actor
    and help the others. None: as many as reference work is of all work, at least one."""

    ranks: int | None = None


@dataclass(frozen=True)
class Adapter:
    """L: the reference is the base model, with the adapter off. No swap: units stream over all ranks, as they also do
    when no reference is needed."""


Mode = FullBatch | Swap | Split | Ahead | Adapter


class Pass(NamedTuple):
    """`rank` works on `unit` (its index; -1 for a swap) from `begin` to `end`, in seconds."""

    stage: Stage
    unit: int
    rank: int
    begin: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """Who does what when. `holding`: ranks, the first ones, that hold the reference at the end."""

    start: float
    finish: float
    ranks: int
    passes: tuple[Pass, ...]
    holding: int

    def seconds(self) -> dict[str, float]:
        """Rank-seconds from `start` to `finish`: reference, actor, swap and wait."""
        bins = {"reference": 0.0, "actor": 0.0, "swap": 0.0}
        for done in self.passes:
            bins[BINS[done.stage]] += done.end - done.begin
        return bins | {"wait": self.ranks * (self.finish - self.start) - sum(bins.values())}


def schedule(
    mode: Mode, units: Sequence[Unit], ranks: int, costs: StageCosts, start: float, *, holding: int = 0
) -> Schedule:
    """All passes of `units` on ranks that are free from `start`; the first `holding` of them hold the reference.

    ValueError for a mode that these ranks cannot run.
    """
    if isinstance(mode, Split) and not 0 < mode.ranks < ranks:
        raise ValueError(f"{mode} of {ranks} ranks leaves none to the reference or none to the actor")
    if isinstance(mode, Ahead) and mode.ranks is not None and not 0 < mode.ranks <= ranks:
        raise ValueError(f"{mode} of {ranks} ranks")
    if isinstance(mode, Adapter):
        costs = replace(costs, swap=0.0)
    bench = _Bench(units, ranks, costs, start, holding)
    match mode:
        case FullBatch():
            _full_batch(bench)
        case Swap():
            _swap(bench, mode)
        case Split():
            _divided(bench, mode.ranks, join=False)
        case Ahead():
            _divided(bench, reference_ranks(ranks, costs) if mode.ranks is None else mode.ranks, join=True)
        case Adapter():
            _stream(bench)
    return bench.settled(mode.ranks if isinstance(mode, Split) else 0)


def reference_ranks(ranks: int, costs: StageCosts) -> int:
    """The share of reference work in all work, in whole ranks, at least one."""
    return max(1, round(ranks * costs.reference / (costs.reference + costs.actor)))


class _Bench:
    """The ranks as the recursion goes on: when each is free and what it holds."""

    def __init__(self, units: Sequence[Unit], ranks: int, costs: StageCosts, start: float, holding: int) -> None:
        self.units = units
        self.costs = costs
        self.start = start
        self.free = [start] * ranks
        self.passes: list[Pass] = []
        self._holds_reference = [rank < holding for rank in range(ranks)]
        self._per_token = {"reference": costs.reference, "forward": costs.forward, "backward": costs.backward}

    def first(self, ranks: Sequence[int] | None = None) -> int:
        """The rank that is free first."""
        return min(range(len(self.free)) if ranks is None else ranks, key=self.free.__getitem__)

    def hold(self, rank: int, *, reference: bool) -> float:
        """The right model on `rank`, and when. The swap begins as soon as the rank is free, not when work arrives."""
        if self._holds_reference[rank] is not reference:
            self._holds_reference[rank] = reference
            if self.costs.swap > 0:
                self._book("swap", -1, rank, self.free[rank], self.costs.swap)
        return self.free[rank]

    def wait(self, rank: int, until: float) -> None:
        self.free[rank] = max(self.free[rank], until)

    def work(self, stage: Stage, unit: int, rank: int, *, after: float = -math.inf) -> float:
        """Its end. Not before the unit is ready, nor before `after`."""
        begin = max(self.hold(rank, reference=stage == "reference"), self.units[unit].ready, after)
        return self._book(stage, unit, rank, begin, self._per_token[stage] * self.units[unit].tokens)

    def train(self, unit: int, rank: int, *, scored: float = -math.inf) -> float:
        """Forward and backward pass; the latter reads log-probs that are there at `scored`."""
        self.work("forward", unit, rank)
        return self.work("backward", unit, rank, after=scored)

    def settled(self, holding: int) -> Schedule:
        """The first `holding` ranks end with the reference, the others with the actor, ready for the optimizer."""
        for rank in range(len(self.free)):
            self.hold(rank, reference=rank < holding)
        finish = max((done.end for done in self.passes), default=self.start)
        return Schedule(self.start, finish, len(self.free), tuple(self.passes), holding)

    def _book(self, stage: Stage, unit: int, rank: int, begin: float, seconds: float) -> float:
        end = self.free[rank] = begin + seconds
        self.passes.append(Pass(stage, unit, rank, begin, end))
        return end


def _full_batch(bench: _Bench) -> None:
    ready = max((unit.ready for unit in bench.units), default=bench.start)
    for rank in range(len(bench.free)):
        bench.wait(rank, ready)
    longest_first = sorted(range(len(bench.units)), key=lambda unit: -bench.units[unit].tokens)
    for rank, share in enumerate(_dealt(bench, longest_first, [0.0] * len(bench.free))):
        for unit in share:
            bench.work("reference", unit, rank)
        for unit in share:
            bench.train(unit, rank)


def _stream(bench: _Bench) -> None:
    pool = ReadyPool(bench.units)
    while pool:
        rank = bench.first()
        pool.wait_for_one(bench.free[rank])
        unit = pool.ready.pop(0)
        bench.work("reference", unit, rank)
        bench.train(unit, rank)


def _swap(bench: _Bench, mode: Swap) -> None:
    pool = ReadyPool(bench.units)
    while pool:
        rank = bench.first()
        now = pool.wait_for_one(bench.hold(rank, reference=True))
        now = _gather(bench, pool, mode, now)
        bench.wait(rank, now)
        cycle = _share(bench, pool, mode, rank, now)
        for unit in cycle:
            bench.work("reference", unit, rank)
        for unit in cycle:
            bench.train(unit, rank)


def _gather(bench: _Bench, pool: ReadyPool, mode: Swap, now: float) -> float:
    """When a cycle begins that is not full at `now`."""
    saved = 2 * bench.costs.swap
    latest = now + saved
    idle = sum(free <= now for free in bench.free)
    while len(pool.ready) < mode.units and pool.coming and mode.interval * max(1, idle) < saved:
        if pool.next_ready > latest:
            return latest
        now = pool.wait_until(pool.next_ready)
    return now


def _share(bench: _Bench, pool: ReadyPool, mode: Swap, rank: int, now: float) -> list[int]:
    """The units of `rank`'s cycle: its part when all that is ready is dealt by time, so that all ranks end together."""
    if mode.units == 1 or len(pool.ready) >= 2 * mode.units * len(bench.free):
        return [pool.ready.pop(0) for _ in range(min(mode.units, len(pool.ready)))]
    # Its own load counts as the least of equals, so that it never goes away empty-handed.
    loads = [now if other == rank else max(free, now) for other, free in enumerate(bench.free)]
    dealt = _dealt(bench, list(pool.ready), loads, first=rank)[rank][: mode.units]
    for unit in dealt:
        pool.ready.remove(unit)
    return dealt


def _divided(bench: _Bench, scoring: int, *, join: bool) -> None:
    """`scoring` ranks do the reference's passes in order of readiness, longest first; the others the actor's in the
    order in which log-probs come. `join`: once no reference pass is left to begin, the scoring ranks train too."""
    order = sorted(range(len(bench.units)), key=lambda unit: (bench.units[unit].ready, -bench.units[unit].tokens))
    scored: dict[int, float] = {}
    for rank in range(len(bench.free)):
        bench.hold(rank, reference=rank < scoring)
    last = bench.start
    for unit in order:
        rank = bench.first(range(scoring))
        scored[unit] = bench.work("reference", unit, rank)
        last = bench.passes[-1].begin
    if join and order:
        for rank in range(scoring):
            bench.wait(rank, last)
            bench.hold(rank, reference=False)
    training = range(0 if join else scoring, len(bench.free))
    for unit in sorted(order, key=scored.__getitem__):
        bench.train(unit, bench.first(training), scored=scored[unit])


def _dealt(bench: _Bench, units: Sequence[int], loads: list[float], *, first: int = 0) -> list[list[int]]:
    """`units` in this order, each to the rank with the least load in seconds; of equals, `first`."""
    per_token = bench.costs.reference + bench.costs.actor
    heap = [(load, rank != first, rank) for rank, load in enumerate(loads)]
    heapq.heapify(heap)
    shares: list[list[int]] = [[] for _ in loads]
    for unit in units:
        load, other, rank = heap[0]
        shares[rank].append(unit)
        heapq.heapreplace(heap, (load + per_token * bench.units[unit].tokens, other, rank))
    return shares
