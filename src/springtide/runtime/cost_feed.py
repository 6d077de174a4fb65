"""Tells the costs what finished work consisted of, and what it took."""

from collections.abc import Callable, Sequence

from springtide.core.group import Group
from springtide.core.trajectory import Trajectory
from springtide.ports.engine import EngineStats
from springtide.ports.executor import Executor
from springtide.ports.trainer import StepReport
from springtide.runtime.dispatch import Dispatch
from springtide.runtime.mover import SWITCH
from springtide.runtime.observer import Observer
from springtide.scheduling.commands import Command
from springtide.scheduling.cost_fold import CostFold
from springtide.scheduling.events import Event


class CostFeed:
    """Hears of pieces of work from the executor (`ended`), and of train steps as an observer.

    `stats`: totals of the engine on a lane. What its work consisted of is by how much they have grown.
    """

    def __init__(self, fold: CostFold, stats: Callable[[str], EngineStats]) -> None:
        self._fold = fold
        self._stats = stats
        self._before: dict[str, EngineStats] = {}
        self._copying = 0.0

    def ended(self, lane: str, name: str, seconds: float) -> None:
        """A piece of work. A publication is a copy on the trainer's lane, and taking it on those of the engines."""
        if name in ("generate", "refresh"):
            stats = self._stats(lane)
            self._fold.visited(stats.since(self._before.get(lane, EngineStats())), seconds)
            self._before[lane] = stats
        elif name == "publish":
            self._copying = seconds
        elif name == "load_weights":
            self._fold.published(self._copying + seconds)
        elif name == SWITCH:
            self._fold.switched(seconds)

    def decided(self, event: Event, commands: Sequence[Command]) -> None:
        pass

    def trained(self, report: StepReport, groups: Sequence[Group]) -> None:
        self._fold.trained(report.work)

    def recovered(self, report: StepReport, groups: Sequence[Group]) -> None:
        self._fold.trained(report.work)

    def evaluated(self, version: int, trajectories: Sequence[Trajectory]) -> None:
        pass


def cost_feeds(fold: CostFold | None, dispatch: Dispatch, executor: Executor) -> list[Observer]:
    """What keeps `fold` up to date, if there is any; from now on."""
    if fold is None:
        return []
    feed = CostFeed(fold, dispatch.stats_of)
    executor.subscribe(feed.ended)
    return [feed]
