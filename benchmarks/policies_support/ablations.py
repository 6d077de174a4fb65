"""Goodput with each subset of the policies, and what each is worth over all orders of adding them."""

import itertools
import statistics
from typing import Any

from common.report import say
from policies_support.bench import Bench, interval
from policies_support.plan import POLICIES
from springtide.simulation.cluster import cluster
from springtide.simulation.strategy import Strategy
from springtide.simulation.workload import preset

SUBSETS = [names for size in range(len(POLICIES) + 1) for names in itertools.combinations(POLICIES, size)]


def ablation(bench: Bench, entry: dict[str, str]) -> dict[str, Any]:
    """Without a policy: KV dropped at updates and evicted by age, 128 episodes per rank, whole batches, half of the
    ranks in rollout."""
    work, hardware = preset(entry["workload"]), cluster(entry["cluster"])
    start = {"rollout_ranks": hardware.ranks // 2}
    strategies = [
        Strategy(**start, **{key: value for name in names for key, value in POLICIES[name].items()})
        for names in SUBSETS
    ]
    runs = bench.runs(work, hardware, strategies)
    per_seed = [
        shares({names: done[place].goodput for names, done in zip(SUBSETS, runs, strict=True)})
        for place in range(len(bench.seeds))
    ]
    found = {name: interval([one[name] for one in per_seed]) for name in POLICIES}
    say(f"{work.name}: " + ", ".join(f"{name} {share['median']:.2f}x" for name, share in found.items()))
    goodput = {
        "+".join(names) or "none": statistics.median(one.goodput for one in done)
        for names, done in zip(SUBSETS, runs, strict=True)
    }
    return {"goodput": goodput, "shares": found}


def shares(goodput: dict[tuple[str, ...], float]) -> dict[str, float]:
    """By what factor each policy raises the goodput: the geometric mean over all orders (Shapley, of its logarithm)."""
    found = dict.fromkeys(POLICIES, 1.0)
    orders = list(itertools.permutations(POLICIES))
    for order in orders:
        for place, name in enumerate(order):
            before = tuple(one for one in POLICIES if one in order[:place])
            after = tuple(one for one in POLICIES if one in order[: place + 1])
            found[name] *= (goodput[after] / goodput[before]) ** (1 / len(orders))
    return found
