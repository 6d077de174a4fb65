"""How good the choice of a reference mode is: against the best mode in hindsight, and against every static one (L2).

    python benchmarks/pipelining.py --json

Train steps of 32 micro-batches, of which some are ready and the others come at some interval, on 2 to 8 ranks with the
costs of `h100-14b`. The choice knows what is ready and how earlier steps went; the oracle knows when all will come, and
takes the best of the modes. Beside it stands how far ours is above what no schedule of any kind is below.
Needs no torch.
"""

import math
import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common.report import finish, machine, parser, table
from springtide.scheduling.pipeliner import Pipeliner, candidates
from springtide.scheduling.pipelining import Mode, Split, StageCosts, Unit, schedule
from springtide.simulation.cluster import cluster

UNITS = 32
TOKENS = 16384
READY = (1, 2, 4, 8, 16, 32)
INTERVALS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Seconds between arrivals, in units of an actor's micro-batch."""
ARRIVALS = ("even", "exponential", "tail")
RANKS = (2, 3, 4, 8)
COSTS = StageCosts.of(cluster("h100-14b").costs, reference=True)


class Cell(NamedTuple):
    arrivals: str
    ranks: int
    ready: int
    interval: float
    seed: int
    steps: int


class Result(NamedTuple):
    """Means over steps: how much longer than the oracle's, as a share of it; `above_floor`: than any schedule takes."""

    cell: Cell
    adaptive: float
    above_floor: float
    static: dict[str, float]


def times(cell: Cell, draw: random.Random) -> Iterator[float]:
    """When the micro-batches that are not ready come; in a tail the last quarter takes three times as long."""
    mean = cell.interval * COSTS.actor * TOKENS
    now, late = 0.0, UNITS - cell.ready
    for number in range(late):
        if cell.arrivals == "exponential":
            now += draw.expovariate(1 / mean) if mean else 0.0
        elif cell.arrivals == "tail":
            now += mean * draw.uniform(0.5, 1.5) * (3 if number >= 0.75 * late else 1)
        else:
            now += mean
        yield now


def play(cell: Cell) -> Result:
    draw = random.Random(f"{cell}")
    chooser, holding = Pipeliner(), 0
    adaptive: list[float] = []
    above: list[float] = []
    static: dict[Mode, list[float]] = {}
    for step in range(cell.steps):
        sizes = [TOKENS if cell.arrivals == "even" else draw.randint(TOKENS * 3 // 4, TOKENS) for _ in range(UNITS)]
        ready = [0.0] * cell.ready + list(times(cell, draw))
        units = [Unit(time, size) for time, size in zip(ready, sizes, strict=True)]
        known = [unit for unit in units if unit.ready <= 0]
        usual = (round(fmean(sizes)),)
        chooser = chooser.decide(known, UNITS - len(known), usual, cell.ranks, COSTS, 0.0, holding=holding)
        assert chooser.mode is not None
        done = schedule(chooser.mode, units, cell.ranks, COSTS, 0.0, holding=holding)
        holding = done.holding
        chooser = chooser.observe(0.0, [unit.ready for unit in units if unit.ready > 0])
        if step == 0:
            continue
        every = math.inf if len(known) == UNITS else cell.interval * COSTS.actor * TOKENS
        modes = candidates(UNITS, cell.ranks, interval=every)
        finishes = {mode: schedule(mode, units, cell.ranks, COSTS, 0.0, holding=kept(mode)).finish for mode in modes}
        best = min(finishes.values())
        adaptive.append(done.finish / best - 1)
        above.append(done.finish / floor(units, cell.ranks) - 1)
        for mode, seconds in finishes.items():
            static.setdefault(mode, []).append(seconds / best - 1)
    return Result(cell, fmean(adaptive), fmean(above), {named(mode): fmean(values) for mode, values in static.items()})


def floor(units: list[Unit], ranks: int) -> float:
    """Seconds that no schedule is below, without swaps: what is still to come after any time is divided at best by all
    ranks, and no unit takes less than its reference and forward passes side by side and then its backward pass.
    """
    work, least = 0.0, 0.0
    for unit in sorted(units, reverse=True):
        work += (COSTS.reference + COSTS.actor) * unit.tokens
        alone = (max(COSTS.reference, COSTS.forward) + COSTS.backward) * unit.tokens
        least = max(least, unit.ready + max(work / ranks, alone))
    return least


def kept(mode: Mode) -> int:
    """What a static mode's last step has left on the ranks."""
    return mode.ranks if isinstance(mode, Split) else 0


def named(mode: Mode) -> str:
    size = getattr(mode, "units", getattr(mode, "ranks", ""))
    return f"{type(mode).__name__.lower()} {size}".strip()


def row(arrivals: str, ranks: int, results: list[Result]) -> tuple[str, ...]:
    names = set.intersection(*(set(result.static) for result in results))
    best = min(sorted(names), key=lambda name: fmean(result.static[name] for result in results))
    others = [result.static[best] for result in results]
    return (
        f"{arrivals}, {ranks} ranks",
        f"{fmean(result.adaptive for result in results):.2%}",
        f"{max(result.adaptive for result in results):.2%}",
        best,
        f"{fmean(others):.2%}",
        f"{max(others):.2%}",
        f"{fmean(result.static['fullbatch'] for result in results):.1%}",
        f"{fmean(result.static['swap 1'] for result in results):.1%}",
    )


def measure(pool: Executor, *, seed: int, steps: int) -> list[Result]:
    """Every cell of the plan; of each, `steps` train steps."""
    cells = [
        Cell(arrivals, ranks, ready, interval, seed, steps)
        for arrivals in ARRIVALS
        for ranks in RANKS
        for ready in READY
        for interval in INTERVALS
    ]
    return list(pool.map(play, cells, chunksize=4))


def figures(results: Sequence[Result]) -> dict[str, float]:
    """`oracle_regret` is a mean over cells. The best static mode is that of each cell by itself."""
    return {
        "oracle_regret": fmean(result.adaptive for result in results),
        "above_floor": fmean(result.above_floor for result in results),
        "oracle_regret_worst_cell": max(result.adaptive for result in results),
        "behind_best_static_worst_cell": max(
            (1 + result.adaptive) / (1 + min(result.static.values())) - 1 for result in results
        ),
    }


def main() -> None:
    options = parser(__doc__).parse_args()
    started = machine()
    with ProcessPoolExecutor(started["cores"]) as pool:
        results = measure(pool, seed=options.seed, steps=5 if options.quick else 40)
    header = ("arrivals", "ours", "worst cell", "best static mode", "it", "worst cell", "full batch", "swap each")
    rows = [
        row(arrivals, ranks, [one for one in results if (one.cell.arrivals, one.cell.ranks) == (arrivals, ranks)])
        for arrivals in ARRIVALS
        for ranks in RANKS
    ]
    print(table(header, rows))
    record = {
        "label": "L2",
        "machine": started,
        "cells": [
            {
                **result.cell._asdict(),
                "adaptive": result.adaptive,
                "above_floor": result.above_floor,
                "static": result.static,
            }
            for result in results
        ],
    }
    finish("pipelining", figures=figures(results), record=record, options=options)


if __name__ == "__main__":
    main()
