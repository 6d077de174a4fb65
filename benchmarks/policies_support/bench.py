"""Modelled runs, several at a time; how a baseline is tuned; intervals over seeds."""

import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from policies_support.plan import RUN, changed
from springtide.runtime.roles import Splitter
from springtide.scheduling.elasticity import Rates
from springtide.simulation.cluster import Cluster
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.simulate import simulate
from springtide.simulation.strategy import Strategy
from springtide.simulation.workload import Workload

TUNING_SEED = 1000
RESAMPLES = 2000
FINALISTS = 0.9
"""Share of the best in tuning from which on a setting is run with all seeds."""


class Job(NamedTuple):
    workload: Workload
    cluster: Cluster
    strategy: Strategy
    seed: int
    steps: int
    warm: int
    splitter: Callable[[Rates], Splitter] | None = None


def play(job: Job) -> Outcomes:
    return simulate(
        job.workload,
        job.cluster,
        job.strategy,
        seed=job.seed,
        steps=job.steps,
        warm_steps=job.warm,
        splitter=job.splitter,
    )


Each = Callable[[Callable[[Job], Outcomes], Iterable[Job]], Iterable[Outcomes]]
"""`map`, or that of a pool."""


class Bench:
    """`steps` and `warm` steps of each of `seeds`; `tuning` the same of the seed that settings are tuned on."""

    def __init__(
        self, each: Each, *, seeds: Sequence[int], steps: int, warm: int, tuning: tuple[int, int] = (4, 1)
    ) -> None:
        self._each = each
        self.seeds, self.steps, self.warm = seeds, steps, warm
        self._tuning = tuning

    def runs(
        self,
        work: Workload,
        hardware: Cluster,
        strategies: Sequence[Strategy],
        *,
        splitter: Callable[[Rates], Splitter] | None = None,
    ) -> list[list[Outcomes]]:
        """Of each strategy, one per seed."""
        jobs = [
            Job(work, hardware, one, seed, self.steps, self.warm, splitter) for one in strategies for seed in self.seeds
        ]
        done = list(self._each(play, jobs))
        return [done[start : start + len(self.seeds)] for start in range(0, len(done), len(self.seeds))]

    def goodputs(self, work: Workload, hardware: Cluster, strategies: Sequence[Strategy]) -> list[float]:
        """Of each strategy, in tuning."""
        steps, warm = self._tuning
        jobs = [Job(work, hardware, one, TUNING_SEED, steps, warm) for one in strategies]
        return [done.goodput for done in self._each(play, jobs)]


class Tuning:
    """The search for the best of a baseline's settings: `axes` are names and values in order. `tried`: goodputs."""

    def __init__(
        self, bench: Bench, work: Workload, hardware: Cluster, axes: Mapping[str, Sequence[Any]], *, sweep: bool
    ) -> None:
        """`sweep`: all values of the first axis before anything else."""
        self._bench, self._work, self._hardware = bench, work, hardware
        self._axes, self._sweep = axes, sweep
        self.tried: dict[str, float] = {}

    def best(self, start: Strategy) -> Strategy:
        at = start
        if self._sweep and self._axes:
            name = next(iter(self._axes))
            at = self._better(at, [changed(at, **{name: value}) for value in self._axes[name]])
        while True:
            before = at
            for name, values in self._axes.items():
                at = self._climb(at, name, values)
            if at == before:
                return at

    def goodput(self, strategy: Strategy) -> float:
        return self.tried[self._label(strategy)]

    def _climb(self, at: Strategy, name: str, values: Sequence[Any]) -> Strategy:
        while True:
            place = values.index(getattr(at, name))
            near = [values[other] for other in (place - 1, place + 1) if 0 <= other < len(values)]
            better = self._better(at, [changed(at, **{name: value}) for value in near])
            if better == at:
                return at
            at = better

    def _better(self, at: Strategy, others: Sequence[Strategy]) -> Strategy:
        every = [at, *(other for other in others if other != at)]
        new = [one for one in every if self._label(one) not in self.tried]
        for one, goodput in zip(new, self._bench.goodputs(self._work, self._hardware, new), strict=True):
            self.tried[self._label(one)] = goodput
        return max(every, key=self.goodput)

    def _label(self, strategy: Strategy) -> str:
        return ", ".join(f"{name} {getattr(strategy, name)}" for name in self._axes) or "as it is"


def interval(values: Sequence[float], seed: int = 0) -> dict[str, float]:
    """Median, and a percentile bootstrap of it over seeds."""
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - RUN["confidence"]) / 2
    low, high = medians[int(tail * RESAMPLES)], medians[int((1 - tail) * RESAMPLES) - 1]
    return {"median": statistics.median(values), "low": low, "high": high}


def ratios(ours: Iterable[Outcomes], theirs: Iterable[Outcomes]) -> list[float]:
    """Of goodputs, paired by seed."""
    return [one.goodput / other.goodput for one, other in zip(ours, theirs, strict=True)]
