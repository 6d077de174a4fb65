"""Environments that do as they are told: well-behaved, slow, broken."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from springtide.core.demonstration import Demonstration
from springtide.core.message import Message
from springtide.core.outcome import Ending, Outcome, Valid
from springtide.core.task import Split, Task
from springtide.core.trajectory import Trajectory
from springtide.environments.guard import GuardedEnvironment
from springtide.ports.environment import Environment, Observation, PhaseLimits


class FakeEnvironment:
    """Ends after `turns` steps with `reward`. `delay` seconds per step. `faults` replaces a phase by a function.

    `phases` lists what was called, for tests to look at.
    """

    def __init__(
        self,
        *,
        turns: int = 1,
        reward: float = 1.0,
        delay: float = 0.0,
        faults: dict[str, Callable[[], Any]] | None = None,
        phases: list[str] | None = None,
    ) -> None:
        self._turns = turns
        self._reward = reward
        self._delay = delay
        self._faults = faults or {}
        self.phases = phases if phases is not None else []

    async def _enter(self, phase: str, value: Any) -> Any:
        self.phases.append(phase)
        if phase not in self._faults:
            return value
        result = self._faults[phase]()
        return await result if asyncio.iscoroutine(result) else result

    async def reset(self, task: Task) -> Observation:
        opening = Observation(messages=(Message(role="user", content=f"task {task.index}"),))
        return await self._enter("reset", opening)  # type: ignore[no-any-return]

    async def step(self, action: Message) -> Observation:
        if self._delay:
            await asyncio.sleep(self._delay)
        self._turns -= 1
        reply = Observation(messages=(Message(role="user", content=f"you said {action.text}"),), done=self._turns == 0)
        return await self._enter("step", reply)  # type: ignore[no-any-return]

    async def verify(self, ending: Ending) -> Outcome:
        return await self._enter("verify", Valid(reward=self._reward, ending=ending))  # type: ignore[no-any-return]

    async def close(self) -> None:
        await self._enter("close", None)


class FakeSource:
    """A source whose environments come from `make`, in the guard. Nothing to imitate."""

    scores_groups = False
    tool_replies_only = False

    def __init__(self, make: Callable[[], Environment] = FakeEnvironment, *, limits: PhaseLimits | None = None) -> None:
        self.limits = limits or PhaseLimits()
        self._make = make
        self.opened = False

    def task(self, *, purpose: str, index: int) -> Task:
        held_out = purpose == "evaluate"
        split = Split.HELD_OUT if held_out else Split.TRAIN
        return Task(id=f"fake/{purpose}/{index}", split=split, index=index, seed=2 * index + held_out)

    async def open(self) -> None:
        self.opened = True

    def demonstration(self, index: int) -> Demonstration | None:
        return None

    def create(self) -> Environment:
        return GuardedEnvironment(self._make, self.limits)

    async def score_group(self, members: Sequence[Trajectory]) -> Sequence[Outcome]:
        return [member.outcome for member in members]

    async def close(self) -> None:
        self.opened = False
