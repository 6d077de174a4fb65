"""Tasks, demonstrations and environments of the shell."""

import random
from collections.abc import Sequence

import msgspec

from springtide.core.demonstration import Demonstration
from springtide.core.member import Purpose
from springtide.core.outcome import Outcome
from springtide.core.task import Task
from springtide.core.trajectory import Trajectory
from springtide.environments.config import ShellConfig
from springtide.environments.guard import GuardedEnvironment
from springtide.environments.shell.environment import ShellEnvironment, demonstration
from springtide.environments.shell.generate import puzzle_of, task_data
from springtide.environments.stream import Stream, make_task
from springtide.ports.environment import Environment, PhaseLimits
from springtide.ports.sandbox import Limits, Sandbox


class ShellSource:
    """`sandbox` is started and closed by whoever made it; tasks and demonstrations need none."""

    scores_groups = False
    tool_replies_only = False

    def __init__(self, config: ShellConfig, *, seed: int, sandbox: Sandbox | None, limits: Limits) -> None:
        self.limits = PhaseLimits(step=60.0 + config.command_seconds)
        self._config = config
        self._seed = seed
        self._sandbox = sandbox
        self._box_limits = msgspec.structs.replace(limits, wall_seconds=config.command_seconds)

    def task(self, *, purpose: str, index: int) -> Task:
        return self._task(Stream.EVALUATE if purpose == Purpose.EVALUATE else Stream.TRAIN, index)

    async def open(self) -> None:
        pass

    def demonstration(self, index: int) -> Demonstration:
        """Flawed at the rate `flaw_rate`: the success rate of the demonstrations is 1 - flaw_rate."""
        task = self._task(Stream.DEMONSTRATE, index)
        puzzle = puzzle_of(task)
        rng = random.Random(f"demonstrate {task.seed}")
        if rng.random() >= self._config.flaw_rate:
            return demonstration(task, puzzle.oracle, flaw="")
        flaw = rng.choice(list(puzzle.flaws))
        return demonstration(task, puzzle.flaws[flaw], flaw=flaw)

    def create(self) -> Environment:
        sandbox = self._sandbox
        assert sandbox is not None, "shell episodes need a sandbox"
        return GuardedEnvironment(lambda: ShellEnvironment(sandbox, self._box_limits), self.limits)

    async def score_group(self, members: Sequence[Trajectory]) -> Sequence[Outcome]:
        return [member.outcome for member in members]

    async def close(self) -> None:
        pass

    def _task(self, stream: Stream, index: int) -> Task:
        data = task_data(self._config.families, self._config.levels, index)
        return make_task(environment="shell", run_seed=self._seed, stream=stream, index=index, data=data)
