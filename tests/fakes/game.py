"""An environment that plays itself out on the clock: latency, rewards and faults follow from seeds."""

import asyncio
import random
import zlib

from springtide.core.errors import InvalidEpisodeError
from springtide.core.message import Message
from springtide.core.outcome import Ending, Valid
from springtide.core.task import Split, Task
from springtide.ports.environment import Observation, PhaseLimits


class FakeRenderer:
    """One token per message."""

    stop_tokens = (0,)

    def prompt(self, messages, tools=()):
        return (100, zlib.crc32(messages[0].text.encode()) % 1000)

    def continuation(self, messages, *, closed=True):
        return (200,)

    def parse(self, tokens):
        return Message(role="assistant", content=" ".join(map(str, tokens)))


class FakeGame:
    """Two to four turns. Reward: parity of what the agent said. A share of episodes fails for no fault of the agent."""

    def __init__(self, source):
        self.source = source
        self.said = 0
        self.turns = 0

    async def reset(self, task):
        self.rng = random.Random(f"{task.seed}")
        self.length = self.rng.randint(1, self.source.turns)
        await self._wait()
        if self.source.faults.random() < self.source.fault_rate:
            raise InvalidEpisodeError("infrastructure", "the box died")
        return Observation(messages=(Message(role="user", content=task.id),))

    async def step(self, action):
        self.turns += 1
        self.said += sum(map(int, action.content.split()))
        await self._wait()
        return Observation(messages=(Message(role="user", content="go on"),), done=self.turns >= self.length)

    async def verify(self, ending):
        assert ending in (Ending.ANSWERED, Ending.TURN_LIMIT)
        return Valid(reward=float(self.said % 2), ending=ending)

    async def close(self):
        self.source.open -= 1

    async def _wait(self):
        await asyncio.sleep(self.source.pace * self.rng.expovariate(1.0) if self.source.latency else 0.0)


class FakeSource:
    limits = PhaseLimits()

    def __init__(self, *, turns=2, latency=True, fault_rate=0.0, pace=1.0, scores_groups=False):
        self.scores_groups = scores_groups
        self.turns = turns
        self.latency = latency
        self.pace = pace
        self.fault_rate = fault_rate
        self.faults = random.Random(0)
        self.rng = random.Random(pace)
        self.open = 0

    def task(self, *, purpose, index):
        return Task(id=f"{purpose}-{index}", split=Split.TRAIN, index=index, seed=index + 1000 * (purpose != "train"))

    def demonstration(self, index):
        return None

    def create(self):
        self.open += 1
        return FakeGame(self)

    async def score_group(self, members):
        """Who said more than the average of the group."""
        await self._think()
        said = [member.trained_tokens for member in members]
        return [
            Valid(reward=float(tokens > sum(said) / len(said))) if member.valid else member.outcome
            for member, tokens in zip(members, said, strict=True)
        ]

    async def _think(self):
        await asyncio.sleep(self.pace * self.rng.expovariate(1.0) if self.latency else 0.0)

    async def close(self):
        pass
