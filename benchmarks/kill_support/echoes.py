"""The environment of the kill benchmark: one to four turns, random waits, a reward that any policy can earn."""

import asyncio
import random

from springtide.core.demonstration import Demonstration
from springtide.core.message import Message
from springtide.core.outcome import Ending, Outcome, Valid
from springtide.core.task import Task
from springtide.ports.environment import Observation


class Echoes:
    """How many turns a task takes follows from its seed alone, so what was trained on can be compared with what was
    issued; how long it waits does not, so arrival order differs from run to run."""

    async def reset(self, task: Task) -> Observation:
        self._left = turns_of(task.seed)
        self._said = 0
        await self._wait()
        return Observation(messages=(Message(role="user", content=f"{self._left} echoes"),))

    async def step(self, action: Message) -> Observation:
        self._left -= 1
        self._said += len(action.text)
        await self._wait()
        return Observation(messages=(Message(role="user", content="again"),), done=self._left == 0)

    async def verify(self, ending: Ending) -> Outcome:
        return Valid(reward=float(self._said % 2), ending=ending)

    async def close(self) -> None:
        pass

    def demonstration(self, task: Task) -> Demonstration:
        messages = [Message(role="user", content=f"{turns_of(task.seed)} echoes")]
        for _ in range(turns_of(task.seed)):
            messages += [Message(role="assistant", content="echo"), Message(role="user", content="again")]
        return Demonstration(task=task, messages=tuple(messages), success=True)

    async def _wait(self) -> None:
        await asyncio.sleep(min(random.lognormvariate(-4.0, 1.0), 0.5))


def turns_of(seed: int) -> int:
    return random.Random(seed).randint(1, 4)
