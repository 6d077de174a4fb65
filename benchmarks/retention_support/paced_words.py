"""The word game with replies that take their time, so that episodes pause while weights change."""

import asyncio
import random

from springtide.core.message import Message
from springtide.core.task import Task
from springtide.environments.word_game import WordGame
from springtide.ports.environment import Observation


class PacedWords(WordGame):
    """Each reply takes a log-normal time of that median (seconds) and shape, drawn from the task's seed."""

    def __init__(self, *, level: int = 2, flaw_rate: float = 0.5, median: float = 0.1, shape: float = 1.0) -> None:
        super().__init__(level=level, flaw_rate=flaw_rate)
        self._median = median
        self._shape = shape

    async def reset(self, task: Task) -> Observation:
        self._pace = random.Random(f"pace {task.seed}")
        return await super().reset(task)

    async def step(self, action: Message) -> Observation:
        await asyncio.sleep(self._median * self._pace.lognormvariate(0.0, self._shape))
        return await super().step(action)
