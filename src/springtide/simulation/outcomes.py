"""What a modelled run came to, and when each of its steps was applied."""

from collections.abc import Callable, Sequence

import msgspec

from springtide.core.group import Group
from springtide.core.trajectory import Trajectory
from springtide.ports.engine import EngineStats
from springtide.ports.trainer import StepReport
from springtide.scheduling.commands import Command
from springtide.scheduling.events import Event


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What a modelled run came to, of its measured steps alone where it says so."""

    goodput: float
    """Sampled tokens of valid members that entered an applied step, per second of the measured steps."""
    seconds: float
    """Of the measured steps."""
    step_ends: tuple[float, ...]
    trained_tokens: tuple[int, ...]
    staleness: tuple[int, ...]
    """Of each group, in the order of consumption."""
    splits: tuple[int, ...]
    """Ranks in rollout when each step was applied."""
    ledger: dict[str, dict[str, float]]
    """Seconds by lane and bin, of the whole run."""
    step_ledgers: tuple[dict[str, dict[str, float]], ...]
    """The same as it was when each step was applied."""
    stats: EngineStats

    @property
    def hit_rate(self) -> float:
        """Share of re-presented tokens whose KV was at hand."""
        represented = self.stats.reused + self.stats.reprefilled
        return self.stats.reused / represented if represented else 1.0


class Steps:
    """An observer that keeps when each step was applied, and what it was made of."""

    def __init__(self, now: Callable[[], float], books: Callable[[], dict[str, dict[str, float]]]) -> None:
        self._now = now
        self._books = books
        self.books: list[dict[str, dict[str, float]]] = []
        self.ends: list[float] = []
        self.tokens: list[int] = []
        self.staleness: list[int] = []
        self.split: Callable[[], int] = lambda: 0
        self.splits: list[int] = []

    def decided(self, event: Event, commands: Sequence[Command]) -> None:
        pass

    def trained(self, report: StepReport, groups: Sequence[Group]) -> None:
        self.ends.append(self._now())
        self.books.append(self._books())
        self.splits.append(self.split())
        self.tokens.append(report.trained_tokens)
        for group in groups:
            oldest = [member.oldest_version for member in group.valid_members]
            self.staleness.append(report.step - 1 - min(version for version in oldest if version is not None))

    def recovered(self, report: StepReport, groups: Sequence[Group]) -> None:
        pass

    def evaluated(self, version: int, trajectories: Sequence[Trajectory]) -> None:
        pass
