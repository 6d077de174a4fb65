"""Longer latencies, or longer outputs, from one step on: what is waited for, and when the split has settled."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from common.report import say
from policies_support.bench import Bench, interval
from policies_support.plan import OURS, PLAN, RUN, changed
from policies_support.splits import Known, Planned
from springtide.simulation.cluster import Cluster, cluster
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.workload import preset

EMPTY = ("training", "admission", "role_switch")
"""Bins of a rank in rollout that has no episodes, or is on its way there. Where all ranks take turns, the first of them
is the time in which it trains."""

GAINS = (0.05, 0.1)
STEPS = 9
"""Measured, warm ones left out: as many after the change as there are before it."""

NEAR = 1
"""Ranks by which a split may differ from the best one: two may be as good. Goodputs right after the change would not do
to compare by: they are as much of what was left over from before."""

REST = 3
"""Steps, the last ones, in which ranks that take turns have to be as fast as the best split: they are near none."""

HEADER = ("change", "policy", "waits less than the calmest static split", "settled after", "goodput to the fastest")


def waited(done: Outcomes, ranks: int, first: int, last: int | None = None) -> float:
    """Rank-seconds per trained token, in steps `first` to `last`, in which training ranks waited for rollouts, or ranks
    in rollout had no episodes because the staleness bound allowed none, or changed their role.

    A rank whose last episodes are with their environments, or whose batch is half empty, is not counted: it may be the
    trainer that it waits for, or the environments.
    """
    books = [{}, *done.step_ledgers]
    seconds = 0.0
    steps = range(first, len(done.splits) if last is None else last)
    for step in steps:
        before, after = books[step], books[step + 1]
        seconds += _spent(before, after, "trainer", "rollout") * (ranks - done.splits[step])
        engines = [lane for lane in after if lane.startswith("engine")]
        names = EMPTY if done.splits[step] < ranks else EMPTY[1:]
        seconds += sum(_spent(before, after, lane, name) for lane in engines for name in names)
    return seconds / sum(done.trained_tokens[step] for step in steps)


def _spent(before: dict[str, dict[str, float]], after: dict[str, dict[str, float]], lane: str, name: str) -> float:
    return after[lane].get(name, 0.0) - before.get(lane, {}).get(name, 0.0)


def goodput(done: Outcomes, first: int, last: int | None = None) -> float:
    """Trained tokens per second in steps `first` to `last`."""
    last = len(done.step_ends) if last is None else last
    begin = done.step_ends[first - 1] if first else 0.0
    return sum(done.trained_tokens[first:last]) / (done.step_ends[last - 1] - begin)


def settled(done: Outcomes, change: int, best: int, *, fast: bool = False) -> int:
    """Steps after the change until the split is what it stays, for at least two steps; all of them if it does not, or
    is farther than `NEAR` from `best`, the best static split after the change, and not as `fast`."""
    splits = done.splits
    steps = max(0, max((step + 1 for step, split in enumerate(splits) if split != splits[-1]), default=0) - change)
    found = change + steps + 1 < len(splits) and (fast or abs(splits[-1] - best) <= NEAR)
    return steps if found else len(splits) - change


def _in_turns_as_fast(done: Outcomes, other: Outcomes, ranks: int) -> bool:
    """All ranks take turns in the end, and train no fewer tokens per second then than the best split does."""
    rest = len(done.splits) - REST
    return done.splits[-1] == ranks and goodput(done, rest) >= goodput(other, rest)


def changes() -> dict[str, dict[str, Any]]:
    """What is different from the planned step on. Longer outputs are not in the plan.

    They are here because more episodes in flight make up for longer latencies, without a change of the split."""
    factor = PLAN["elasticity"]["change"]["latency_factor"]
    return {"latency": {"change_latency": factor}, "output": {"change_output": factor}}


def shock(bench: Bench, entry: dict[str, str], change: dict[str, Any], *, groups: int | None = None) -> dict[str, Any]:
    """`groups` per step, if not those of the preset."""
    at: int = PLAN["elasticity"]["change"]["at_step"]
    hardware, work = cluster(entry["cluster"]), preset(entry["workload"], groups)
    work = work.model_copy(update={"change_at": at * work.groups_per_step, **change})
    splits = range(1, hardware.ranks)
    stays = [changed(OURS, elasticity="static", rollout_ranks=split) for split in splits]
    static = dict(zip(splits, bench.runs(work, hardware, stays), strict=True))
    known = _oracle(static, at)
    moving = {
        "ours": bench.runs(work, hardware, [OURS])[0],
        "oracle split per step": bench.runs(
            work, hardware, [changed(OURS, rollout_ranks=known.splits[0])], splitter=known
        )[0],
    }
    for gain in GAINS:
        planner = Planned(gain, 1, hardware.costs.role_switch)
        moving[f"planner, gain {gain:g}"] = bench.runs(work, hardware, [OURS], splitter=planner)[0]
    found = _found(bench, hardware, at, static, moving, known.splits[-1])
    say(
        f"{work.name}, {change}: waits down by {found['waiting_reduction']['median']:.0%}, settled after "
        f"{found['settle_steps']:g} steps, best static splits {known.splits[0]} and then {known.splits[-1]}"
    )
    return found | {"best_static_before": known.splits[0], "best_static_after": known.splits[-1]}


def _oracle(static: dict[int, list[Outcomes]], change: int) -> Known:
    """The best static split of each phase, changed when the first different episodes are issued."""

    def best(first: int, last: int | None) -> int:
        return max(static, key=lambda split: statistics.median(goodput(one, first, last) for one in static[split]))

    issued = change - RUN["staleness"]
    return Known((*[best(RUN["warm_steps"], change)] * issued, best(change + RUN["staleness"], None)))


def _found(
    bench: Bench,
    hardware: Cluster,
    change: int,
    static: dict[int, list[Outcomes]],
    moving: dict[str, list[Outcomes]],
    best: int,
) -> dict[str, Any]:
    ranks, warm = hardware.ranks, bench.warm
    waits = {split: statistics.median(waited(one, ranks, warm) for one in done) for split, done in static.items()}
    rates = {split: statistics.median(goodput(one, warm) for one in done) for split, done in static.items()}
    calm, fast = min(waits, key=waits.__getitem__), max(rates, key=rates.__getitem__)

    def entry(done: list[Outcomes]) -> dict[str, Any]:
        return {
            "waiting_reduction": interval(_reductions(done, static[calm], ranks, warm)),
            "waiting_reduction_to_fastest": interval(_reductions(done, static[fast], ranks, warm)),
            "settle_steps": statistics.median(
                settled(one, change, best, fast=_in_turns_as_fast(one, other, ranks))
                for one, other in zip(done, static[best], strict=True)
            ),
            "goodput_vs_best_static": interval(
                [goodput(one, warm) / goodput(other, warm) for one, other in zip(done, static[fast], strict=True)]
            ),
            "splits": [one.splits for one in done],
            "step_ends": [one.step_ends for one in done],
            "trained_tokens": [one.trained_tokens for one in done],
        }

    entries = {name: entry(done) for name, done in moving.items()}
    return {
        **{name: entries["ours"][name] for name in ("waiting_reduction", "settle_steps")},
        "static_waits": waits,
        "static_goodput": rates,
        "least_waiting_static": calm,
        "fastest_static": fast,
        "moving": entries,
    }


def _reductions(done: Sequence[Outcomes], other: Sequence[Outcomes], ranks: int, warm: int) -> list[float]:
    return [1 - waited(a, ranks, warm) / waited(b, ranks, warm) for a, b in zip(done, other, strict=True)]


def rows(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for change, one in found.items():
        for name, entry in one["moving"].items():
            yield (
                change,
                name,
                f"{entry['waiting_reduction']['median']:.0%}",
                f"{entry['settle_steps']:g}",
                f"{entry['goodput_vs_best_static']['median']:.2f}",
            )
