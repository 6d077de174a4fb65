"""Which mode a train step runs: the one whose schedule ends first when work arrives as it has done lately."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import fmean

from springtide.core.errors import UsageError
from springtide.scheduling.pipelining import (
    Adapter,
    Ahead,
    FullBatch,
    Mode,
    Split,
    StageCosts,
    Swap,
    Unit,
    schedule,
)

GAIN = 0.05
"""Share of a step, on average over STEPS, that another mode has to save before the present one is left."""
STEPS = 2
"""Steps in which it has to, at least. A smaller gain counts too, if it lasts the longer."""
RECENT = 4
"""Steps whose arrivals serve as what may come."""
LARGEST = 64
"""Units per cycle that are tried at most: beyond, two swaps are nothing."""

WORDS: dict[str, Mode] = {"full": FullBatch(), "swap": Swap(1), "ahead": Ahead(), "adapter": Adapter()}
"""Settings without a number."""


@dataclass(frozen=True)
class Forecast:
    """What is still to come of a step: `arrivals` times, every `interval` seconds on average, units of so many `tokens`
    each. `shape`: growing numbers up to 1, at which share of the time each of some earlier arrivals has come; evenly
    if empty. Evenly spaced work never queues, and so makes a mode look good that is just fast enough."""

    arrivals: int
    interval: float
    tokens: tuple[int, ...]
    shape: tuple[float, ...] = ()

    def units(self, start: float) -> list[Unit]:
        whole = self.arrivals * self.interval
        return [
            Unit(start + whole * self._share(number / self.arrivals), tokens)
            for number in range(1, self.arrivals + 1)
            for tokens in self.tokens
        ]

    def _share(self, done: float) -> float:
        """Of the time, when that share of the arrivals has come: `shape`, with straight lines between."""
        if not self.shape:
            return done
        place = done * len(self.shape)
        before = min(int(place), len(self.shape) - 1)
        lower = self.shape[before - 1] if before else 0.0
        return lower + (place - before) * (self.shape[before] - lower)


def candidates(units: int, ranks: int, *, interval: float = math.inf) -> tuple[Mode, ...]:
    """What a step of so many units can run with a reference that has to be swapped. `interval`: between units."""
    per_rank = min(LARGEST, math.ceil(units / ranks))
    cycles = takewhile(lambda size: size < 2 * per_rank, (2**power for power in range(64)))
    return (
        FullBatch(),
        *(Swap(size, interval) for size in cycles),
        *(Split(number) for number in range(1, ranks)),
        *(Ahead(number) for number in range(1, ranks + 1)),
    )


def choose(
    modes: Sequence[Mode],
    known: Sequence[Unit],
    coming: Sequence[Forecast],
    ranks: int,
    costs: StageCosts,
    start: float,
    *,
    holding: int = 0,
) -> tuple[Mode, dict[Mode, float]]:
    """The mode of the earliest finish, the first of equals, and the finish of all in seconds: means over `coming`, each
    of which is as likely."""
    now = max([start, *(unit.ready for unit in known)])
    cases = [[*known, *forecast.units(now)] for forecast in coming]
    finishes = {
        mode: fmean(schedule(mode, units, ranks, costs, start, holding=holding).finish for units in cases)
        for mode in modes
    }
    return min(finishes, key=finishes.__getitem__), finishes


@dataclass(frozen=True)
class Pipeliner:
    """The choice from step to step, with hysteresis: the present mode stays until another one would have saved STEPS
    times GAIN of a step, and the swaps of changing, in at least STEPS steps, less what it would have cost in others (a
    CUSUM test: E. S. Page, Continuous inspection schemes, Biometrika 1954). Starved ranks leave it at once.

    `recent`: of up to RECENT steps the seconds between arrivals, and how these were spread (see Forecast). `missed`:
    the modes that have been better lately, each with the steps since then, and what it would have saved as shares of a
    step.
    """

    mode: Mode | None = None
    recent: tuple[tuple[float, tuple[float, ...]], ...] = ()
    missed: tuple[tuple[Mode, int, float], ...] = ()

    def decide(
        self,
        known: Sequence[Unit],
        arrivals: int,
        tokens: tuple[int, ...],
        ranks: int,
        costs: StageCosts,
        start: float,
        *,
        holding: int = 0,
    ) -> "Pipeliner":
        """Its `mode` is for the step that begins at `start`: `known` is there, `arrivals` times `tokens` are to come.

        Until arrivals have been seen they are expected as fast as the ranks train.
        """
        if costs.reference == 0:
            return replace(self, mode=Adapter())
        usual = ((costs.actor * sum(tokens) / ranks, ()),)
        coming = [Forecast(arrivals, interval, tokens, shape) for interval, shape in self.recent or usual]
        interval = fmean(forecast.interval for forecast in coming)
        per_unit = interval / max(1, len(tokens)) if arrivals else math.inf
        modes = candidates(len(known) + arrivals * len(tokens), ranks, interval=per_unit)
        best, finishes = choose(modes, known, coming, ranks, costs, start, holding=holding)
        kept = next((mode for mode in modes if mode == self.mode), None)
        present = finishes[kept] if kept is not None else math.inf
        starved = arrivals > 0 and len(known) < ranks
        if kept is None or (starved and finishes[best] < present):
            return replace(self, mode=best, missed=())
        missed = self._miss(finishes, present, present - start)
        change = costs.swap / (present - start)
        worth = [
            (saved - max(STEPS * GAIN, change * _changes(kept, other)), other)
            for other, steps, saved in missed
            if steps >= STEPS and finishes[other] < present
        ]
        gain, better = max(worth, key=lambda one: one[0], default=(0.0, kept))
        if gain > 0:
            return replace(self, mode=better, missed=())
        return replace(self, mode=kept, missed=missed)

    def _miss(self, finishes: dict[Mode, float], present: float, whole: float) -> tuple[tuple[Mode, int, float], ...]:
        """`missed` after a step of `whole` seconds."""
        before = {mode: (steps, saved) for mode, steps, saved in self.missed}
        after = []
        for mode, finish in finishes.items():
            steps, saved = before.get(mode, (0, 0.0))
            saved += (present - finish) / whole
            if saved > 0:
                after.append((mode, steps + 1, saved))
        return tuple(after)

    def observe(self, start: float, late: Sequence[float]) -> "Pipeliner":
        """The step that began at `start` got the rest of its work at these times, in seconds."""
        if not late:
            return self
        whole = max(late) - start
        shape = tuple((time - start) / whole for time in sorted(late)) if whole > 0 else ()
        return replace(self, recent=(*self.recent, (whole / len(late), shape))[-RECENT:])


def _changes(mode: Mode, other: Mode) -> int:
    """Swaps, one after another, that leaving `mode` for `other` takes beyond those of every step."""
    return int(isinstance(mode, Split)) + int(isinstance(other, Split)) if mode != other else 0


def static(setting: str, ranks: int) -> Mode:
    """The mode that a setting such as "split-2" names, on `ranks` ranks. UsageError if they cannot run it."""
    if setting in WORDS:
        return WORDS[setting]
    name, _, number = setting.partition("-")
    count = int(number) if number.isdecimal() else 0
    if name == "swap" and count:
        return Swap(count)
    if name == "split" and 0 < count < ranks:
        return Split(count)
    if name == "ahead" and 0 < count <= ranks:
        return Ahead(count)
    raise UsageError(
        f"pipelining = {setting} is nothing that {ranks} training ranks can run; there are: full, swap, swap-K, "
        f"split-M with M below {ranks}, ahead, ahead-M with M up to {ranks}, adapter, adaptive."
    )
