"""Rules of retention one by one, all else held at ours: goodput, hits and recomputation at fixed oversubscription."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from common.report import say
from policies_support.bench import Bench, interval, ratios
from policies_support.demand import demand, divided, subscribed
from policies_support.plan import OURS, PLAN, RUN, changed
from springtide.simulation.bound import bound
from springtide.simulation.cluster import Cluster, cluster
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.strategy import Strategy
from springtide.simulation.workload import Workload, preset

SWEEP = PLAN["retention"]["sweep"]
RULES: dict[str, list[dict[str, str]]] = {
    "ours": [{"retention": "break-even"}],
    "lru": [{"retention": "lru", "evicts": "cold"}],
    "lru with the host tier": [{"retention": "lru"}],
    "tuned cap": [{"retention": f"cap-{share:g}"} for share in SWEEP["cap"]],
    "ttl": [{"retention": f"ttl-{seconds:g}"} for seconds in SWEEP["ttl_seconds"]],
    "exponential decay": [{"retention": f"decay-{seconds:g}"} for seconds in SWEEP["half_life_seconds"]],
    "min-waste": [{"retention": "min-waste"}],
    "residency cap": [{"retention": f"residency-{share:g}"} for share in SWEEP["residency"]],
    "oracle": [{"retention": "oracle"}],
}
WORKLOADS = ("tau", "swe")
PART = 4
"""A rule decides for one rank: a quarter of the cluster, which is one that rolls out and one that trains, will do."""
TIMES = 2.0
"""The oversubscription at which hits are required."""

HEADER = ("workload", "host memory", "demand / KV", "rule", "goodput to ours", "KV hits", "recompute")


def compare(bench: Bench, entry: dict[str, str], points: Sequence[float], *, host: bool) -> list[dict[str, Any]]:
    """A workload where demand is so many times the capacity, with host memory as the cluster has it or without."""
    hardware, work = divided(cluster(entry["cluster"]), preset(entry["workload"]), PART)
    split = bound(work, hardware, staleness=RUN["staleness"], reference=RUN["reference"]).rollout_ranks
    episodes = round(demand(work, hardware).episodes)
    base = changed(OURS, elasticity="static", rollout_ranks=split, admission="fixed", concurrency_per_rank=episodes)
    found = []
    for times in points:
        tight = subscribed(work, hardware, times)
        if not host:
            tight = tight.model_copy(update={"host_tokens": 0})
        rules = _rules(bench, work, tight, base, host=host)
        found.append({"workload": work.name, "host_memory": host, "oversubscription": times, "rules": rules})
        shown = ", ".join(f"{name} {rule['goodput_to_ours']['median']:.2f}" for name, rule in rules.items())
        say(f"{work.name} at {times:g}x{'' if host else ', no host memory'}: {shown}")
    return found


def _rules(bench: Bench, work: Workload, hardware: Cluster, base: Strategy, *, host: bool) -> dict[str, Any]:
    rules = {name: rule for name, rule in RULES.items() if host or name != "lru with the host tier"}
    best = {name: _tuned(bench, work, hardware, [changed(base, **one) for one in rule]) for name, rule in rules.items()}
    done = dict(zip(best, bench.runs(work, hardware, list(best.values())), strict=True))
    return {name: _entry(best[name], theirs, done["ours"]) for name, theirs in done.items()}


def _tuned(bench: Bench, work: Workload, hardware: Cluster, settings: Sequence[Strategy]) -> Strategy:
    if len(settings) == 1:
        return settings[0]
    goodputs = bench.goodputs(work, hardware, settings)
    return settings[goodputs.index(max(goodputs))]


def _entry(strategy: Strategy, theirs: Sequence[Outcomes], ours: Sequence[Outcomes]) -> dict[str, Any]:
    return {
        "setting": strategy.retention,
        "goodput_to_ours": interval(ratios(theirs, ours)),
        "goodput": [one.goodput for one in theirs],
        "hit_rate": interval([one.hit_rate for one in theirs]),
        "recompute_share": statistics.median(_recomputing(one) for one in theirs),
    }


def _recomputing(done: Outcomes) -> float:
    """Share of the time of the ranks in rollout."""
    engines = [bins for lane, bins in done.ledger.items() if lane.startswith("engine")]
    return sum(bins.get("recompute", 0.0) for bins in engines) / sum(sum(bins.values()) for bins in engines)


def hit_rate(points: Sequence[dict[str, Any]]) -> float | None:
    """Ours with host memory, where demand is twice the capacity: the least over workloads, if there are any."""
    wanted = [point for point in points if point["oversubscription"] == TIMES and point["host_memory"]]
    return min((point["rules"]["ours"]["hit_rate"]["median"] for point in wanted), default=None)


def rows(points: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for point in points:
        for name, rule in point["rules"].items():
            yield (
                point["workload"],
                "yes" if point["host_memory"] else "no",
                f"{point['oversubscription']:g}",
                f"{name} ({rule['setting']})",
                f"{rule['goodput_to_ours']['median']:.3f}",
                f"{rule['hit_rate']['median']:.3f}",
                f"{rule['recompute_share']:.1%}",
            )
