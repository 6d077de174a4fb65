"""What modelled runs of one strategy came to, beside what no schedule can beat."""

from collections.abc import Sequence
from statistics import median
from typing import Any

import msgspec

from springtide.simulation.bound import bound
from springtide.simulation.cluster import Cluster
from springtide.simulation.failure import Failure
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.script import Work
from springtide.simulation.simulate import elastic, simulate
from springtide.simulation.strategy import Strategy
from springtide.simulation.timeline import Timeline

SHOWN = 5e-4
"""Shares of time below this are left out."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over seeds; `lowest` and `highest` are the extremes of the goodput, `ledger` is of the first seed."""

    workload: str
    cluster: str
    strategy: dict[str, Any]
    seeds: list[int]
    goodput_tokens_per_s: float
    lowest: float
    highest: float
    bound_tokens_per_s: float
    bound_fraction: float
    in_order_tokens_per_s: float
    """The bound where versions are trained in order."""
    step_seconds: float
    staleness_max: int
    hit_rate: float
    ledger: dict[str, dict[str, float]]
    """Share of the time by bin, of the trainer and of all rollout ranks together."""


def summarise(
    workload: Work,
    cluster: Cluster,
    strategy: Strategy,
    *,
    seeds: list[int],
    steps: int,
    warm_steps: int,
    timeline: Timeline | None = None,
    failures: Sequence[Failure] = (),
) -> tuple[Summary, list[Outcomes]]:
    """Simulate once per seed, each with the same `failures`; `timeline` gets what the first one's ranks did."""
    most = bound(workload, cluster, staleness=strategy.bound, reference=strategy.reference)
    if strategy.mode == "async" and strategy.rollout_ranks == 0 and not elastic(strategy):
        strategy = strategy.model_copy(update={"rollout_ranks": most.rollout_ranks})
    runs = [
        simulate(
            workload,
            cluster,
            strategy,
            seed=seed,
            steps=steps,
            warm_steps=warm_steps,
            timeline=timeline if seed == seeds[0] else None,
            failures=failures,
        )
        for seed in seeds
    ]
    rates = sorted(run.goodput for run in runs)
    summary = Summary(
        workload=workload.name,
        cluster=cluster.name,
        strategy=strategy.model_dump(),
        seeds=seeds,
        goodput_tokens_per_s=median(rates),
        lowest=rates[0],
        highest=rates[-1],
        bound_tokens_per_s=most.bounded,
        bound_fraction=median(rates) / most.bounded,
        in_order_tokens_per_s=most.in_order,
        step_seconds=median(run.seconds / steps for run in runs),
        staleness_max=max(max(run.staleness) for run in runs),
        hit_rate=median(run.hit_rate for run in runs),
        ledger=shares(runs[0].ledger),
    )
    return summary, runs


def shares(ledger: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Share of the time by bin, of the trainer and of all rollout ranks together."""
    rollout = [bins for lane, bins in ledger.items() if lane.startswith("engine")]
    found = {}
    for kind, lanes in (("trainer", [ledger["trainer"]]), ("rollout", rollout)):
        total = sum(sum(bins.values()) for bins in lanes)
        names = sorted({name for bins in lanes for name in bins})
        portions = {name: sum(bins.get(name, 0.0) for bins in lanes) / total for name in names}
        found[kind] = {name: portion for name, portion in portions.items() if portion > SHOWN}
    return found
