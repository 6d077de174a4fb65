"""Service costs fitted online, from a prior that is wrong, on modelled clusters in virtual time (L2).

    python benchmarks/costs.py --json

Four presets under our policies, with half of the cluster and small batches. The costs that policies start from are half
of the right ones, twice them, those of another cluster, or lopsided: half of those of rollout and twice those of
training; or everything takes 1.5 times as long from the middle of the run on. Said are how far predictions of a visit
and of a train step are off as the run goes on, and the goodput beside that of the same run with the right costs, and
with the wrong ones for good. Needs no torch.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common.report import finish, machine, parser, say, table
from policies_support.plan import OURS, PLAN
from springtide.ports.engine import EngineStats
from springtide.ports.trainer import StepWork
from springtide.scheduling.cost_fold import RELOADED, SERVED, CostFold, served
from springtide.scheduling.costs import CurrentCosts, ServiceCosts, given
from springtide.simulation.cluster import cluster
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.simulate import Simulation
from springtide.simulation.stack import ModelledStack
from springtide.simulation.virtual_loop import run_virtual
from springtide.simulation.workload import preset

PRESETS = ("tau", "search", "shop", "roll10")
RANKS = 4
GROUPS = 12
STEPS, WARM = 5, 1
SEEDS = (0, 1)
OTHER = {"h100-14b": "h100-32b", "h100-7b": "h100-14b"}
"""The cluster whose costs are taken instead."""
PRIORS = ("half", "double", "another cluster", "lopsided")
SLOWER = 1.5

WINDOWS = ((1, 1), (2, 10), (11, 100), (101, 1000), (1001, None))
"""Visits, of all ranks together: of the run, or since the drift."""

HEADER = ("preset", "prior", "for good", "fitted", "visit 1", "2-10", "11-100", "101-1000", "later", "steps")
"""Goodput as a share of that with the right costs, then errors of predictions as the run goes on."""


def scaled(costs: ServiceCosts, factor: float) -> ServiceCosts:
    """All seconds; a share of them is no cost of its own."""
    values = {name: factor * value for name, value in costs.model_dump().items()}
    return ServiceCosts.model_validate(values | {"training_attention": costs.training_attention})


def seconds_of_step(costs: ServiceCosts, work: StepWork) -> float:
    def alike(tokens: float, attended: float) -> float:
        return tokens + costs.training_attention * attended

    return (
        costs.actor(1) * alike(work.actor.tokens, work.actor.attended)
        + costs.reference_token * alike(work.reference.tokens, work.reference.attended)
        + costs.optimizer * work.updates
        + costs.swap * work.swaps
    )


class Watched(CostFold):
    """Keeps by how much each prediction was off, as a share of what it took, before it learned from it."""

    def __init__(self, prior: ServiceCosts) -> None:
        super().__init__(prior)
        self.visits: list[float] = []
        self.steps: list[float] = []

    def forget(self) -> None:
        """What was off until now is not looked at."""
        self.visits, self.steps = [], []

    def visited(self, done: EngineStats, seconds: float) -> None:
        taken = seconds - done.reload_wait
        if done.visits and taken > 0:
            costs = self.now()
            predicted = sum(getattr(costs, name) * n for name, n in zip(SERVED, served(done), strict=True))
            self.visits.append(abs(predicted / taken - 1))
        super().visited(done, seconds)

    def trained(self, work: StepWork) -> None:
        taken = work.actor.seconds + work.reference.seconds + work.update_seconds + work.swap_seconds
        self.steps.append(abs(seconds_of_step(self.now(), work) / taken - 1))
        super().trained(work)


class Job(NamedTuple):
    """Policies start from `prior`, and go by it for good or, if they `learn`, by what is fitted. `drifts`: from these
    seconds on all work takes longer; costs that are "right" then are so at any time."""

    workload: str
    hardware: str
    prior: str
    learns: bool
    seed: int
    groups: int
    steps: int
    drifts: float | None = None


class Found(NamedTuple):
    """`later`: tokens per second since the middle step. `visits`, `trained`: by what shares predictions were off.
    `ratios`: of the costs at the end to the right ones."""

    goodput: float
    later: float
    seconds: float
    splits: tuple[int, ...]
    visits: list[float]
    trained: list[float]
    ratios: dict[str, float]


def prior_of(job: Job, right: ServiceCosts) -> ServiceCosts:
    if job.prior == "another cluster":
        return cluster(OTHER[job.hardware]).costs
    if job.prior == "lopsided":
        rollout = {name: 0.5 * getattr(right, name) for name in (*SERVED, *RELOADED)}
        return scaled(right, 2.0).model_copy(update=rollout)
    return scaled(right, {"half": 0.5, "double": 2.0}.get(job.prior, 1.0))


def play(job: Job) -> Found:
    hardware = cluster(job.hardware).model_copy(update={"ranks": RANKS})
    prior = prior_of(job, hardware.costs)
    fold = Watched(prior) if job.learns else None
    true = [hardware.costs]
    costs: CurrentCosts = given(prior) if fold is None else fold.now
    if job.prior == "right":
        costs = lambda: true[-1]  # noqa: E731
    stack = ModelledStack(hardware, OURS, engines=RANKS, training=RANKS - RANKS // 2, colocated=False, expected=costs)

    def drift() -> None:
        true.append(scaled(hardware.costs, SLOWER))
        stack.change(true[-1])
        if fold is not None:
            fold.forget()

    run = Simulation(
        preset(job.workload, job.groups),
        hardware,
        OURS,
        seed=job.seed,
        steps=job.steps,
        warm_steps=WARM,
        stack=stack,
        costs=fold or costs,
    )

    async def main() -> Outcomes:
        if job.drifts is not None:
            asyncio.get_running_loop().call_later(job.drifts, drift)
        return await run.main()

    done, _ = run_virtual(main)
    return found(done, fold, true[-1])


def found(done: Outcomes, fold: Watched | None, right: ServiceCosts) -> Found:
    middle = len(done.step_ends) // 2
    later = sum(done.trained_tokens[middle:]) / (done.step_ends[-1] - done.step_ends[middle - 1])
    if fold is None:
        return Found(done.goodput, later, done.step_ends[-1], done.splits, [], [], {})
    last = fold.now()
    ratios = {name: getattr(last, name) / value for name, value in right.model_dump().items() if value > 0}
    return Found(done.goodput, later, done.step_ends[-1], done.splits, fold.visits, fold.steps, ratios)


def windows(errors: Sequence[float]) -> list[float | None]:
    """Median error of the visits in each window."""
    parts = [errors[first - 1 : last] for first, last in WINDOWS]
    return [statistics.median(part) if part else None for part in parts]


def over_seeds(columns: Iterable[Sequence[Any]]) -> list[Any]:
    """Means, place by place; where one is missing, of the others."""
    kept = [[each for each in column if each is not None] for column in zip(*columns, strict=False)]
    return [statistics.fmean(column) if column else None for column in kept]


def entry(fitted: Sequence[Found], fixed: Sequence[Found], right: Sequence[Found], *, drift: bool) -> dict[str, Any]:
    """Of one prior. Goodput is a share of that with the right costs; after a drift, of what comes since."""

    def share(these: Sequence[Found]) -> float:
        place = Found._fields.index("later" if drift else "goodput")
        return statistics.fmean(one[place] / other[place] for one, other in zip(these, right, strict=True))

    return {
        "goodput_for_good": share(fixed),
        "goodput_fitted": share(fitted),
        "visit_errors": over_seeds(windows(one.visits) for one in fitted),
        "step_errors": over_seeds(one.trained for one in fitted),
        "ratios": {name: statistics.fmean(one.ratios[name] for one in fitted) for name in fitted[0].ratios},
        "visits": [len(one.visits) for one in fitted],
        "splits": {
            "right": [one.splits for one in right],
            "fitted": [one.splits for one in fitted],
            "for good": [one.splits for one in fixed],
        },
    }


Each = Callable[[Callable[[Job], Found], Sequence[Job]], Iterable[Found]]
"""`map`, or that of a pool."""


def compare(each: Each, workload: str, seeds: Sequence[int], *, groups: int, steps: int) -> dict[str, Any]:
    """Each prior, and the drift that begins halfway through the run with the right costs."""
    hardware = next(one["cluster"] for one in PLAN["preset"] if one["workload"] == workload)

    def job(prior: str, seed: int, *, learns: bool, drifts: float | None = None) -> Job:
        return Job(workload, hardware, prior, learns, seed, groups, steps, drifts)

    def runs(jobs: Sequence[Job]) -> list[Found]:
        return list(each(play, jobs))

    right = runs([job("right", seed, learns=False) for seed in seeds])
    made: dict[str, Any] = {}
    for prior in PRIORS:
        fitted, fixed = (runs([job(prior, seed, learns=learns) for seed in seeds]) for learns in (True, False))
        made[prior] = entry(fitted, fixed, right, drift=False)
    half = [one.seconds / 2 for one in right]
    cases = (("right", False), ("before", True), ("before", False))
    known, fitted, fixed = (
        runs([job(prior, seed, learns=learns, drifts=at) for seed, at in zip(seeds, half, strict=True)])
        for prior, learns in cases
    )
    return made | {"slower from the middle on": entry(fitted, fixed, known, drift=True)}


def rows(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for workload, priors in found.items():
        for prior, one in priors.items():
            yield (
                workload,
                prior,
                *(f"{one[name]:.2f}" for name in ("goodput_for_good", "goodput_fitted")),
                *("-" if error is None else f"{error:.1%}" for error in one["visit_errors"]),
                " ".join(f"{error:.0%}" for error in one["step_errors"]),
            )


def figures(found: dict[str, Any]) -> dict[str, float]:
    """The worst over presets, apart from the drift: what is left of goodput, and errors after 100 visits and at the
    last step."""
    priors = [one for priors in found.values() for name, one in priors.items() if name in PRIORS]
    drifts = [one for priors in found.values() for name, one in priors.items() if name not in PRIORS]
    return {
        "goodput_fitted": min(one["goodput_fitted"] for one in priors),
        "goodput_for_good": min(one["goodput_for_good"] for one in priors),
        "visit_error": max(error for one in priors for error in one["visit_errors"][3:] if error is not None),
        "step_error": max(one["step_errors"][-1] for one in priors),
        "drift_goodput_fitted": min(one["goodput_fitted"] for one in drifts),
        "drift_goodput_for_good": min(one["goodput_for_good"] for one in drifts),
    }


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--workers", type=int, default=1, help="processes")
    options = made.parse_args()
    presets, seeds, groups, steps = (PRESETS, SEEDS, GROUPS, STEPS)
    if options.quick:
        presets, seeds, groups, steps = ("tau",), (0,), 4, 3
    begun, started = time.monotonic(), machine()
    results: dict[str, Any] = {}
    with ProcessPoolExecutor(options.workers) as pool:
        each: Each = map if options.workers == 1 else pool.map
        for workload in presets:
            first = [options.seed + seed for seed in seeds]
            results[workload] = compare(each, workload, first, groups=groups, steps=steps)
            say(f"{workload}: {time.monotonic() - begun:.0f} s")
    print(table(HEADER, list(rows(results))))
    about = {"ranks": RANKS, "groups_per_step": groups, "steps": steps, "warm_steps": WARM, "slower": SLOWER}
    spent = {"wall_seconds": round(time.monotonic() - begun), "cpu_seconds": round(time.process_time())}
    record = {"label": "L2", "machine": started, **spent, "about": about}
    finish("costs", figures=figures(results), record=record | {"found": results}, options=options)


if __name__ == "__main__":
    main()
