"""What a modelled run has in the place of disk and environments."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from springtide.core.demonstration import Demonstration
from springtide.core.message import Message
from springtide.core.outcome import Ending, Outcome
from springtide.core.task import Split, Task
from springtide.core.trajectory import Trajectory
from springtide.ports.environment import Environment, Observation, PhaseLimits
from springtide.ports.journal import EndRecord, Entry
from springtide.rollout.episode import EpisodePlayer
from springtide.runtime.dispatch import Dispatch
from springtide.runtime.evaluator import Evaluator
from springtide.scheduling.events import Boundary


class NoJournal:
    """Implements the Journal port: a simulation is not resumed."""

    def append(
        self, *, entries: Sequence[Entry], trajectories: Sequence[Trajectory] = (), ends: Sequence[EndRecord] = ()
    ) -> None:
        pass

    def entries(self) -> Iterator[Entry]:
        return iter(())

    def trajectory(self, group: int, slot: int) -> Trajectory:
        raise KeyError((group, slot))

    def ends(self) -> Iterator[EndRecord]:
        return iter(())

    def close(self) -> None:
        pass


class NoCheckpoints:
    """Implements Checkpoints: nothing is written."""

    def save(self, step: int, write: Callable[[Path], None], boundary: Boundary) -> None:
        pass

    def restore(self, read: Callable[[Path], None], *, newest: int) -> Boundary:
        return Boundary()


class Nothing:
    """Implements the Environment port; a scripted player never calls it."""

    async def reset(self, task: Task) -> Observation:
        raise NotImplementedError

    async def step(self, action: Message) -> Observation:
        raise NotImplementedError

    async def verify(self, ending: Ending) -> Outcome:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class Tasks:
    """Implements EnvironmentSource: numbered tasks, and nothing behind them."""

    limits = PhaseLimits()
    scores_groups = False
    tool_replies_only = False

    def task(self, *, purpose: str, index: int) -> Task:
        return Task(id=str(index), split=Split.TRAIN, index=index, seed=index)

    async def open(self) -> None:
        pass

    def demonstration(self, index: int) -> Demonstration | None:
        return None

    def create(self) -> Environment:
        return Nothing()

    async def score_group(self, members: Sequence[Trajectory]) -> Sequence[Outcome]:
        return [member.outcome for member in members]

    async def close(self) -> None:
        pass


def no_evaluator(player: EpisodePlayer, dispatch: Dispatch) -> Evaluator:
    """A simulation never evaluates."""
    return Evaluator(
        player=player,
        source=Tasks(),
        dispatch=dispatch,
        temperature=1.0,
        success_reward=1.0,
        concurrent=1,
        max_attempts=1,
    )
