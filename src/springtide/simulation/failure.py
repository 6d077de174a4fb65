"""Ranks that die in a modelled run, and perhaps come back: when, and how it is seen."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from springtide.core.errors import UsageError
from springtide.core.group import Group
from springtide.core.trajectory import Trajectory
from springtide.ports.trainer import StepReport
from springtide.runtime.rank import DEAD
from springtide.scheduling.commands import Command
from springtide.scheduling.events import Event, RankDied, RankJoined
from springtide.scheduling.membership import Membership
from springtide.simulation.cluster import Cluster
from springtide.simulation.strategy import Strategy
from springtide.simulation.timeline import Span, Timeline


class Failure(msgspec.Struct, frozen=True):
    """`rank` dies `at` seconds into the run, and is there again, empty, at `back`, if ever."""

    rank: int
    at: float
    back: float | None = None


def parse(text: str) -> Failure:
    """RANK@SECONDS, or RANK@SECONDS-SECONDS for one that comes back. UsageError for anything else."""
    try:
        rank, times = text.split("@")
        at, *back = (float(time) for time in times.split("-"))
        if len(back) > 1 or not 0 <= at < min(back, default=float("inf")):
            raise ValueError
        return Failure(int(rank), at, back[0] if back else None)
    except ValueError:
        raise UsageError(
            f"--fail {text}: write RANK@SECONDS, such as 2@600, or 2@600-900 for a rank that is back at 900 s."
        ) from None


def require_mortal(failures: Sequence[Failure], cluster: Cluster, strategy: Strategy) -> None:
    """UsageError for failures that cannot be played."""
    for failure in failures:
        if not 0 <= failure.rank < cluster.ranks:
            raise UsageError(
                f"--fail {failure.rank}@{failure.at:g}: '{cluster.name}' has no rank {failure.rank}; its ranks are 0 "
                f"to {cluster.ranks - 1}."
            )
    for name, plays in {
        "versions": strategy.versions == "newest",
        "surplus": strategy.surplus == 1,
        "pipelining": not strategy.pipelining.startswith("split"),
    }.items():
        if not plays:
            raise UsageError(
                f"--fail does not go with {name} = {getattr(strategy, name)}, which stands for a fixed set of ranks; "
                "leave one of them out."
            )


def schedule(
    failures: Sequence[Failure], *, membership: Callable[[], Membership], post: Callable[[Event], None]
) -> None:
    """Told on the loop of the run, from now on."""
    loop = asyncio.get_running_loop()

    def die(rank: int) -> None:
        post(RankDied(rank, membership().since[rank]))

    for failure in failures:
        loop.call_later(failure.at, die, failure.rank)
        if failure.back is not None:
            loop.call_later(failure.back, post, RankJoined(failure.rank))


class Deaths:
    """An observer that notes on a timeline for how long ranks were dead. `lanes`: of all ranks."""

    def __init__(self, timeline: Timeline, lanes: Sequence[str], now: Callable[[], float]) -> None:
        self._timeline = timeline
        self._lanes = lanes
        self._now = now
        self._since: dict[int, float] = {}

    def decided(self, event: Event, commands: Sequence[Command]) -> None:
        if isinstance(event, RankDied):
            self._since.setdefault(event.rank, self._now())
        elif isinstance(event, RankJoined):
            self._note(event.rank)

    def finish(self) -> None:
        """The run is over."""
        for rank in list(self._since):
            self._note(rank)

    def _note(self, rank: int) -> None:
        since = self._since.pop(rank, None)
        if since is not None:
            self._timeline.add(Span(self._lanes[rank], DEAD, since, self._now() - since))

    def trained(self, report: StepReport, groups: Sequence[Group]) -> None:
        pass

    def recovered(self, report: StepReport, groups: Sequence[Group]) -> None:
        pass

    def evaluated(self, version: int, trajectories: Sequence[Trajectory]) -> None:
        pass
