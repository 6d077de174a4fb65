"""The map: where it pays and where it does not, over how slow environments are, how scarce KV is, how latencies vary
and how stale tokens may be."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.report import say
from policies_support.baselines import BASELINES, Baseline, against
from policies_support.bench import Bench, interval
from policies_support.demand import divided, paced, subscribed, varied
from policies_support.plan import OURS, PLAN, RUN, changed
from springtide.simulation.bound import bound
from springtide.simulation.cluster import cluster
from springtide.simulation.workload import preset

MAP = PLAN["map"]
PART = 2
"""Half of the cluster, and of a batch."""
GROUPS = ("vs_async", "vs_reconstruction")
HEADER = ("T_env/T_gpu", "demand / KV", "deviation", "K", "of the bound", "vs async", "best async", "vs reconstruction")
LINES = ("in flight, keep", "one step off", "over-provision and abort", "our reconstruction of TideRL")


class Point(NamedTuple):
    """None: as the workload has it."""

    environment_ratio: float = 1.0
    oversubscription: float = 2.0
    latency_deviation: float | None = None
    staleness: int = 1


def points() -> list[Point]:
    crossed = [Point(ratio, times) for ratio in MAP["environment_ratio"] for times in MAP["oversubscription"]]
    varied_ = [Point(latency_deviation=deviation) for deviation in MAP["latency_deviation"]]
    stale = [Point(staleness=limit) for limit in MAP["staleness"] if limit != Point().staleness]
    return [*crossed, *varied_, *stale]


def lines(staleness: int) -> list[Baseline]:
    """One step off has a staleness of 1; without any, the barrier is what to beat."""
    wanted = [line for line in BASELINES if line.name in LINES]
    if staleness != 1:
        wanted = [line for line in wanted if line.name != "one step off"]
    if staleness == 0:
        barrier = Baseline("sync, environment-level async", "vs_async", {"mode": "sync"}, None)
        wanted = [barrier, *(line for line in wanted if line.name != "over-provision and abort")]
    return wanted


def worth(point: Point, seeds: Sequence[int]) -> dict[str, Any]:
    """At one point of the map."""
    bench = Bench(map, seeds=seeds, steps=3, warm=2, tuning=(2, 1))
    hardware, work = divided(cluster("h100-14b"), preset("tau"), PART)
    if point.latency_deviation is not None:
        work = varied(work, point.latency_deviation)
    work = paced(work, hardware, point.environment_ratio)
    tight = subscribed(work, hardware, point.oversubscription)
    most = bound(work, tight, staleness=point.staleness, reference=RUN["reference"])
    (ours,) = bench.runs(work, tight, [changed(OURS, staleness=point.staleness)])
    compared = against(
        bench,
        work,
        tight,
        ours,
        lines(point.staleness),
        split=most.rollout_ranks,
        staleness=point.staleness,
        sweep=False,
    )
    found = {
        **point._asdict(),
        "kv_tokens": tight.kv_tokens,
        "latency_factor": work.latency_factor,
        "bound_fraction": interval([one.goodput / most.bounded for one in ours]),
        "hit_rate": min(one.hit_rate for one in ours),
        **compared,
    }
    say(" ".join(row(found)))
    return found


def row(found: dict[str, Any]) -> tuple[str, ...]:
    deviation = found["latency_deviation"]
    return (
        f"{found['environment_ratio']:g}",
        f"{found['oversubscription']:g}",
        "as it is" if deviation is None else f"{deviation:g}",
        f"{found['staleness']}",
        f"{found['bound_fraction']['median']:.0%}",
        f"{found['vs_async']['median']:.2f}",
        found["vs_async"]["best"],
        f"{found['vs_reconstruction']['median']:.2f}",
    )


def rows(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    yield from (row(one) for one in found)


def draw(found: Sequence[dict[str, Any]], path: Path) -> None:
    """The part that is crossed, as two heat maps: a file of the kind that the name of `path` says."""
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.figure import Figure

    across, down = MAP["oversubscription"], MAP["environment_ratio"]
    default = Point()
    cells = {
        (one["environment_ratio"], one["oversubscription"]): one
        for one in found
        if one["latency_deviation"] is None and one["staleness"] == default.staleness
    }
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axes, group, title in zip(
        figure.subplots(1, 2, sharey=True),
        GROUPS,
        ("to the best tuned async baseline", "to our reconstruction of TideRL"),
        strict=True,
    ):
        values = [[cells[ratio, times][group]["median"] for times in across] for ratio in down]
        most = max(1.1, *(value for line in values for value in line))
        axes.imshow(
            values, cmap="RdBu", norm=TwoSlopeNorm(1.0, vmin=2 - most, vmax=most), aspect="auto", origin="lower"
        )
        for y, line in enumerate(values):
            for x, value in enumerate(line):
                axes.text(x, y, f"{value:.2f}", ha="center", va="center")
        axes.set(title=f"goodput {title}", xlabel="demand / KV capacity")
        axes.set_xticks(range(len(across)), [f"{times:g}" for times in across])
        axes.set_yticks(range(len(down)), [f"{ratio:g}" for ratio in down])
    figure.axes[0].set_ylabel("T_env / T_gpu of a turn")
    figure.savefig(path, dpi=130)
