"""Goodput with each subset of the policies, and what each is worth over all orders of adding them."""

import itertools
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from common.report import say
from policies_support.bench import Bench, interval, ratios
from policies_support.plan import OURS, POLICIES, PRIORITIES, RUN, changed
from springtide.simulation.cluster import cluster
from springtide.simulation.strategy import Strategy
from springtide.simulation.workload import preset

HEADER = ("preset", "mode", *PRIORITIES)
NAMES = (*POLICIES, *PRIORITIES)
SUBSETS = [
    (*names, *rule)
    for size in range(len(POLICIES) + 1)
    for names in itertools.combinations(POLICIES, size)
    for rule in ((), *((one,) for one in PRIORITIES))
]
"""Of the policies, with one rule of priority at most."""


def ablation(bench: Bench, entry: dict[str, str]) -> dict[str, Any]:
    """Without a policy: KV dropped at updates and evicted by age, 128 episodes per rank, whole batches, half of the
    ranks in rollout, the oldest group first. `shares` are of the three policies; `priorities`: of each rule, as a
    fourth."""
    work, hardware = preset(entry["workload"]), cluster(entry["cluster"])
    settings = POLICIES | {rule: {"priority": rule} for rule in PRIORITIES}
    start = {"rollout_ranks": hardware.ranks // 2}
    strategies = [
        Strategy(**start, **{key: value for name in names for key, value in settings[name].items()})
        for names in SUBSETS
    ]
    runs = bench.runs(work, hardware, strategies)
    per_seed = [
        {names: done[place].goodput for names, done in zip(SUBSETS, runs, strict=True)}
        for place in range(len(bench.seeds))
    ]
    three = [shares(one, tuple(POLICIES)) for one in per_seed]
    found = {name: interval([one[name] for one in three]) for name in POLICIES}
    rules = {rule: interval([shares(one, (*POLICIES, rule))[rule] for one in per_seed]) for rule in PRIORITIES}
    both = (found | rules).items()
    say(f"{work.name}: " + ", ".join(f"{name} {share['median']:.2f}x" for name, share in both))
    goodput = {
        "+".join(names) or "none": statistics.median(one.goodput for one in done)
        for names, done in zip(SUBSETS, runs, strict=True)
    }
    return {"goodput": goodput, "shares": found, "priorities": rules}


def shares(goodput: dict[tuple[str, ...], float], names: Sequence[str]) -> dict[str, float]:
    """By what factor each of `names` raises the goodput: the geometric mean over all orders (Shapley, of its
    logarithm)."""
    found = dict.fromkeys(names, 1.0)
    orders = list(itertools.permutations(names))
    for order in orders:
        for place, name in enumerate(order):
            before = tuple(one for one in names if one in order[:place])
            after = tuple(one for one in names if one in order[: place + 1])
            found[name] *= (goodput[after] / goodput[before]) ** (1 / len(orders))
    return found


def priorities(bench: Bench, entry: dict[str, str], mode: str, groups: int | None = None) -> dict[str, Any]:
    """Ours with each rule, over ours with the oldest group first. In sync, ranks take turns."""
    work, hardware = preset(entry["workload"], groups), cluster(entry["cluster"])
    base = changed(OURS, staleness=RUN["staleness"])
    if mode == "sync":
        base = changed(base, mode="sync", elasticity="static", pipelining="full")
    oldest, *others = bench.runs(work, hardware, [base, *(changed(base, priority=rule) for rule in PRIORITIES)])
    found = {
        rule: interval(done) for rule, done in zip(PRIORITIES, (ratios(one, oldest) for one in others), strict=True)
    }
    say(f"{work.name}, {mode}: " + ", ".join(f"{rule} {one['median']:.3f}x" for rule, one in found.items()))
    return found


def rows(found: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    for name, modes in found.items():
        for mode, rules in modes.items():
            cells = (rules[rule] for rule in PRIORITIES)
            yield [name, mode, *(f"{one['median']:.3f} ({one['low']:.3f} to {one['high']:.3f})" for one in cells)]
