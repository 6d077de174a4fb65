"""The baselines of the whole loop, tuned, against ours."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from policies_support.bench import FINALISTS, Bench, Tuning, interval, ratios
from springtide.simulation.cluster import Cluster
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.strategy import Strategy
from springtide.simulation.workload import Workload

SWEEP = (8, 16, 32, 64, 128, 256)
"""Episodes in flight per rank. The plan began at 32 and 64, which turned out to be the edge where KV binds."""

SURPLUS = (1.25, 1.5, 2.0)


class Baseline(NamedTuple):
    """`least` ranks roll out at least, where the ranks are split; None where they take turns."""

    name: str
    group: str
    fixed: dict[str, Any]
    least: int | None = 1
    surplus: tuple[float, ...] = ()

    def axes(self, ranks: int) -> dict[str, Sequence[Any]]:
        found: dict[str, Sequence[Any]] = {"concurrency_per_rank": SWEEP}
        if self.surplus:
            found["surplus"] = self.surplus
        if self.least is not None:
            found["rollout_ranks"] = range(self.least, ranks)
        return found

    def start(self, split: int, staleness: int) -> Strategy:
        """In the middle of what is tried, at the bound's split."""
        split = 0 if self.least is None else max(split, self.least)
        at = Strategy(**self.fixed, concurrency_per_rank=32, rollout_ranks=split, staleness=staleness)
        return at.model_copy(update={"surplus": self.surplus[-1]}) if self.surplus else at


BASELINES = (
    Baseline("sync", "vs_sync", {"mode": "sync", "turnwise": True}, None),
    Baseline("sync, environment-level async", "vs_sync", {"mode": "sync"}, None),
    Baseline("one step off", "vs_async", {"batchwise": True, "kv": "keep"}),
    Baseline("bounded staleness, flush", "vs_async", {"kv": "recompute"}),
    Baseline("in flight, keep", "vs_async", {"kv": "keep"}),
    Baseline("over-provision and abort", "vs_async", {"mode": "sync"}, None, SURPLUS),
    Baseline("multi-version", "vs_async", {"versions": "own"}, 2),
    Baseline("our reconstruction of TideRL", "vs_reconstruction", {"kv": "recompute", "pipelining": "adaptive"}),
)


def against(
    bench: Bench,
    work: Workload,
    hardware: Cluster,
    ours: Sequence[Outcomes],
    lines: Sequence[Baseline],
    *,
    split: int,
    staleness: int,
    sweep: bool = True,
    splits: bool = True,
) -> dict[str, Any]:
    """Ratios of our goodput to the best of each group, with intervals, and what every baseline came to."""
    tunings: dict[str, tuple[Tuning, Strategy]] = {}
    for line in lines:
        axes = line.axes(hardware.ranks)
        if not splits:
            axes.pop("rollout_ranks", None)
        tuning = Tuning(bench, work, hardware, axes, sweep=sweep)
        tunings[line.name] = tuning, tuning.best(line.start(split, staleness))
    tuned = {name: tuning.goodput(best) for name, (tuning, best) in tunings.items()}
    found: dict[str, Any] = {"baselines": {}}
    groups: dict[str, tuple[float, str, list[float]]] = {}
    for line in lines:
        tuning, best = tunings[line.name]
        entry = {"tuned": best.model_dump(exclude_defaults=True), "tried": tuning.tried}
        most = max(tuned[other.name] for other in lines if other.group == line.group)
        if tuned[line.name] >= FINALISTS * most:
            (theirs,) = bench.runs(work, hardware, [best])
            entry["goodput"] = [one.goodput for one in theirs]
            entry["hit_rate"] = statistics.median(one.hit_rate for one in theirs)
            median = statistics.median(one.goodput for one in theirs)
            groups[line.group] = max(groups.get(line.group, (0.0, "", [])), (median, line.name, ratios(ours, theirs)))
        found["baselines"][line.name] = entry
    for group, (_, name, values) in groups.items():
        found[group] = interval(values) | {"best": name}
    return found
