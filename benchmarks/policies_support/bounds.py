"""What no schedule of divided ranks beats, and what is above or below: ranks that take turns, versions in order."""

from collections.abc import Iterator
from typing import Any

from policies_support.plan import RUN
from springtide.simulation.bound import limits
from springtide.simulation.cluster import cluster
from springtide.simulation.workload import preset

HEADER = ("preset", "fluid", "by staleness", "versions in order", "ranks in turns")


def bounds(entry: dict[str, str]) -> dict[str, float]:
    """Trained tokens per second. `fluid`: G*. `staleness`: what K leaves, by the mean slowest episode. `in_order`:
    where a version cannot come before the one that precedes it. `turns`: G* if all ranks roll out and then all train.
    """
    hardware = cluster(entry["cluster"])
    found = limits(preset(entry["workload"]), hardware, reference=RUN["reference"])
    split = found.split(hardware.ranks)
    return {
        "fluid": min(found.rollout(split), found.training(hardware.ranks - split)),
        "staleness": found.staleness(RUN["staleness"]),
        "in_order": found.in_order(RUN["staleness"]),
        "turns": 1 / (1 / found.rollout(hardware.ranks) + 1 / found.training(hardware.ranks)),
    }


def rows(found: dict[str, dict[str, float]]) -> Iterator[tuple[str, ...]]:
    for name, one in found.items():
        yield (name, *(f"{one[kind]:,.0f}" for kind in ("fluid", "staleness", "in_order", "turns")))


def in_order_fractions(found: dict[str, dict[str, float]], presets: dict[str, Any]) -> dict[str, float]:
    """Of each preset's median goodput, of the smallest of G*, what staleness leaves, and versions in order."""
    shares: dict[str, float] = {}
    for name in found.keys() & presets.keys():
        one = found[name]
        plain = min(one["fluid"], one["staleness"])
        shares[name] = presets[name]["bound_fraction"]["median"] * plain / min(plain, one["in_order"])
    return dict(sorted(shares.items()))


def most(fractions: dict[str, float], presets: dict[str, Any]) -> dict[str, dict[str, float]]:
    """What a schedule that reaches the bound, with versions in order, would have over the same baselines."""
    return {
        name: {group: presets[name][group]["median"] / share for group in ("vs_async", "vs_reconstruction")}
        for name, share in fractions.items()
    }
