"""Each preset: ours, the bound, and every baseline at its best."""

import statistics
from collections.abc import Iterator
from typing import Any

from common.report import say
from policies_support.baselines import BASELINES, against
from policies_support.bench import Bench, interval
from policies_support.demand import demand
from policies_support.plan import OURS, RUN
from springtide.simulation.bound import bound
from springtide.simulation.cluster import cluster
from springtide.simulation.workload import preset

GROUPS = ("vs_sync", "vs_async", "vs_reconstruction")
HEADER = ("preset", "T_env/T_gpu", "of the bound", "vs sync", "vs async", "vs reconstruction", "KV hits", "binds")


def compare(bench: Bench, entry: dict[str, str], *, groups: int | None = None, splits: bool = True) -> dict[str, Any]:
    """`groups` per step, if not those of the preset; `splits`: every static split is tried."""
    work, hardware = preset(entry["workload"], groups), cluster(entry["cluster"])
    staleness = RUN["staleness"]
    most = bound(work, hardware, staleness=staleness, reference=RUN["reference"])
    (ours,) = bench.runs(work, hardware, [OURS])
    compared = against(
        bench, work, hardware, ours, BASELINES, split=most.rollout_ranks, staleness=staleness, splits=splits
    )
    asked = demand(work, hardware).tokens / hardware.kv_tokens
    binds = "environment" if most.bounded < most.fluid else "kv" if asked > 1 else "neither"
    found = {
        "bound_fraction": interval([one.goodput / most.bounded for one in ours]),
        **{group: compared[group] for group in GROUPS},
        "environment_ratio": most.environment_ratio,
        "oversubscription": asked,
        "binds": binds,
        "hit_rate": statistics.median(one.hit_rate for one in ours),
        "splits": [one.splits for one in ours],
        "goodput": [one.goodput for one in ours],
        "warm": [sum(one.trained_tokens[: bench.warm]) / one.step_ends[bench.warm - 1] for one in ours],
        "baselines": compared["baselines"],
    }
    shown = ", ".join(f"{group} {found[group]['median']:.2f} ({found[group]['best']})" for group in GROUPS)
    say(f"{work.name}: {found['bound_fraction']['median']:.0%} of the bound, {shown}")
    return found


def rows(presets: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, found in presets.items():
        yield (
            name,
            f"{found['environment_ratio']:.2f}",
            f"{found['bound_fraction']['median']:.0%}",
            *(f"{found[group]['median']:.2f}" for group in GROUPS),
            f"{found['hit_rate']:.3f}",
            found["binds"],
        )
