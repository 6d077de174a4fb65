"""What it is worth to bring the last episodes of a batch together on few ranks.

Ranks are freed only between steps here, so that the ranks which have no episode any more have nothing else to do. What
is measured is whether to bring episodes together gains by itself, and the time of ranks that it frees: an upper bound
of what there would be to gain if ranks could do something else within a step.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil
from typing import Any, NamedTuple

from common.report import say
from policies_support.bench import interval
from policies_support.plan import CTB
from springtide.runtime.controller import Controller
from springtide.runtime.dispatch import Dispatch
from springtide.runtime.rank import OTHER_ROLE
from springtide.scheduling.commands import IssueGroup
from springtide.scheduling.events import Event, MemberFinished
from springtide.simulation.cluster import Cluster, cluster
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.simulate import Simulation
from springtide.simulation.strategy import Strategy
from springtide.simulation.virtual_loop import run_virtual
from springtide.simulation.workload import preset

WORKLOADS = ("swe", "search", "tau")
LEAST = (4, 16)
"""Episodes in flight per rank below which they are brought together on as few ranks as have so many each."""
STEPS, WARM = 3, 1
HEADER = ("preset", "mode", "episodes per rank", "goodput", "with free moves", "time freed")


class Job(NamedTuple):
    """`free`: what a rank has to compute or to reload, but for decoding, takes no time."""

    workload: str
    cluster: str
    mode: str
    least: int
    free: bool
    seed: int
    groups: int | None


Each = Callable[[Callable[[Job], tuple[float, float]], Iterable[Job]], Iterable[tuple[float, float]]]


class Repacking(Simulation):
    """Turns of the last episodes go to few ranks; when it has ended, or others begin, all ranks are there again."""

    def __init__(self, *arguments: Any, least: int, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._least = least

    def _controller(self, *arguments: Any) -> Controller:
        controller = super()._controller(*arguments)
        scheduler, dispatch = controller.scheduler, next(each for each in arguments if isinstance(each, Dispatch))
        decide, ranks = scheduler.on, len(self.engines)

        def on(event: Event) -> Any:
            commands = decide(event)
            flying = len(scheduler.in_flight) + len(scheduler.waiting.entries)
            if not flying or any(isinstance(command, IssueGroup) for command in commands):
                dispatch.roll_out_on(ranks)
            elif isinstance(event, MemberFinished):
                dispatch.roll_out_on(min(dispatch.rollout_ranks, ceil(flying / self._least)))
            return commands

        if self._least:
            scheduler.on = on  # type: ignore[method-assign]
        return controller


def play(job: Job) -> tuple[float, float]:
    """Goodput, and the share of the time of ranks in rollout that they were free."""
    work, hardware = preset(job.workload, job.groups), cluster(job.cluster)
    if job.free:
        nothing = ("prefill_base", "prefill_token", "prefill_attention", "reload_base", "reload_token")
        costs = hardware.costs.model_copy(update=dict.fromkeys(nothing, 0.0))
        hardware = hardware.model_copy(update={"costs": costs})
    simulation = Repacking(
        work, hardware, _strategy(job.mode, hardware), seed=job.seed, steps=STEPS, warm_steps=WARM, least=job.least
    )
    outcomes: Outcomes = run_virtual(simulation.main)[0]
    books = [lane for name, lane in outcomes.ledger.items() if name.startswith("engine")]
    freed = sum(lane.get(OTHER_ROLE, 0.0) for lane in books) / sum(sum(lane.values()) for lane in books)
    return outcomes.goodput, freed


def _strategy(mode: str, hardware: Cluster) -> Strategy:
    """Ours, with a split and a number of episodes that stay."""
    kept = {**CTB, "admission": "fixed"}
    if mode == "sync":
        return Strategy(**kept, mode="sync")
    return Strategy(**kept, pipelining="adaptive", rollout_ranks=hardware.ranks // 2)


def tail(each: Each, entry: dict[str, str], seeds: Sequence[int], groups: int | None = None) -> list[dict[str, Any]]:
    """Goodput as a ratio to that without, in sync and in async, and the share of time that is freed."""
    return [compare(each, entry, mode, seeds, groups) | {"mode": mode} for mode in ("sync", "async")]


def compare(each: Each, entry: dict[str, str], mode: str, seeds: Sequence[int], groups: int | None) -> dict[str, Any]:
    cases = list(itertools.product((0, *LEAST), (False, True), seeds))
    jobs = [Job(entry["workload"], entry["cluster"], mode, *case, groups) for case in cases]
    done = dict(zip(cases, each(play, jobs), strict=True))

    def ratio(least: int, free: bool) -> dict[str, float]:
        return interval([done[least, free, seed][0] / done[0, free, seed][0] for seed in seeds])

    found = {
        str(least): {
            "goodput": ratio(least, False),
            "free_moves": ratio(least, True),
            "freed": interval([done[least, False, seed][1] for seed in seeds]),
        }
        for least in LEAST
    }
    worth = ", ".join(f"{least} per rank {one['goodput']['median']:.3f}x" for least, one in found.items())
    say(f"tail of {entry['workload']}, {mode}: {worth}")
    return found


def rows(found: dict[str, list[dict[str, Any]]]) -> Iterator[list[str]]:
    for name, modes in found.items():
        for one in modes:
            for least in map(str, LEAST):
                values = one[least]
                medians = [f"{values[key]['median']:.3f}" for key in ("goodput", "free_moves")]
                yield [name, one["mode"], least, *medians, f"{100 * values['freed']['median']:.1f} %"]
