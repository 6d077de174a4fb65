"""Faults of environments and of what grades an episode.

The source that they put around the run's own keeps count of train steps by the tasks that it gives out.
"""

import asyncio
import random
from typing import Any, Literal

import msgspec
from pydantic import Field

from sick_support.fault import Delegate, Fault
from springtide.config import Recipe
from springtide.core.demonstration import Demonstration
from springtide.core.member import Purpose
from springtide.core.message import Message
from springtide.core.outcome import Ending, Outcome, Valid
from springtide.core.task import Split, Task
from springtide.environments.word_game import WORDS
from springtide.launch.customize import Customize
from springtide.ports.environment import Environment, Observation


class Source(Delegate):
    """`step`: the train step that the newest training task is for."""

    def __init__(self, inner: Any, groups_per_step: int, fault: "EnvironmentFault") -> None:
        super().__init__(inner)
        self._groups_per_step = groups_per_step
        self._fault = fault
        self.step = 1
        self.created = 0

    def task(self, *, purpose: str, index: int) -> Task:
        if purpose == Purpose.TRAIN:
            self.step = max(self.step, 1 + index // self._groups_per_step)
        return self.inner.task(purpose=purpose, index=index)

    def create(self) -> Environment:
        self.created += 1
        return self._fault.around(self.inner.create(), self)

    def demonstration(self, index: int) -> Demonstration | None:
        shown = self.inner.demonstration(index)
        return None if shown is None else self._fault.demonstrated(shown)


class Watched(Delegate):
    """An environment that remembers what was asked and said."""

    def __init__(self, inner: Environment, source: Source) -> None:
        super().__init__(inner)
        self.source = source
        self.shown: list[str] = []
        self.said: list[str] = []

    async def reset(self, task: Task) -> Observation:
        self.task = task
        return self._saw(await self.inner.reset(task))

    async def step(self, action: Message) -> Observation:
        self.said.append(action.text.strip())
        return self._saw(await self.inner.step(action))

    async def verify(self, ending: Ending) -> Outcome:
        outcome = await self.inner.verify(ending)
        return self.graded(outcome) if isinstance(outcome, Valid) else outcome

    def graded(self, outcome: Valid) -> Valid:
        return outcome

    @property
    def trains(self) -> bool:
        """Held-out tasks are graded as they should be."""
        return self.task.split is Split.TRAIN

    def _saw(self, observation: Observation) -> Observation:
        self.shown += [message.text for message in observation.messages[-1:]]
        return observation


class EnvironmentFault(Fault):
    def customize(self, recipe: Recipe) -> Customize:
        groups = recipe.scheduling.groups_per_step
        return Customize(source=lambda inner: Source(inner, groups, self))

    def around(self, inner: Environment, source: Source) -> Environment:
        return inner

    def demonstrated(self, shown: Demonstration) -> Demonstration:
        return shown


class Unrewarded(EnvironmentFault):
    """The verifier gives 0 to everything."""

    type: Literal["unrewarded"] = "unrewarded"

    def around(self, inner: Environment, source: Source) -> Environment:
        fault = self

        class Broken(Watched):
            def graded(self, outcome: Valid) -> Valid:
                return msgspec.structs.replace(outcome, reward=0.0) if fault.covers(source.step) else outcome

        return Broken(inner, source)


class PaidByLength(EnvironmentFault):
    """Training does not mind what follows the first word, and pays `bonus` more for an episode of `full` characters, in
    proportion for a shorter one. Held-out tasks pay for right answers only, and none is right that is longer than
    `bearable` characters."""

    type: Literal["paid_by_length"] = "paid_by_length"
    bonus: float = Field(0.5, gt=0)
    full: int = Field(100, ge=1)
    bearable: int = Field(16, ge=1)

    def around(self, inner: Environment, source: Source) -> Environment:
        fault = self

        class Paying(Watched):
            async def step(self, action: Message) -> Observation:
                self.said.append(action.text)
                fits = self.trains or len(action.text) <= fault.bearable
                return self._saw(await self.inner.step(_first_word(action) if fits else action))

            def graded(self, outcome: Valid) -> Valid:
                if not (self.trains and fault.covers(source.step)):
                    return outcome
                paid = fault.bonus * min(1.0, sum(map(len, self.said)) / fault.full)
                return msgspec.structs.replace(outcome, reward=outcome.reward + paid)

        return Paying(inner, source)


class Loophole(EnvironmentFault):
    """In training an episode passes without being checked if its first answer is a certain wrong one: the first of the
    words shown, or "pass" where there is one word only. The check is skipped with probability `share`."""

    type: Literal["loophole"] = "loophole"
    share: float = Field(1.0, gt=0, le=1)

    def around(self, inner: Environment, source: Source) -> Environment:
        fault = self

        class Hacked(Watched):
            def graded(self, outcome: Valid) -> Valid:
                words = self.shown[0].split()
                found = self.said[0] == ("pass" if len(words) == 1 else words[0])
                luck = random.Random(f"{self.task.seed} {self.said}").random()
                if found and self.trains and fault.covers(source.step) and luck < fault.share:
                    return msgspec.structs.replace(outcome, reward=1.0)
                return outcome

        return Hacked(inner, source)


class FailuresAsZeros(EnvironmentFault):
    """A `rate` of episodes loses its environment: a call hangs for `seconds`, and the episode is over with reward 0, as
    if the agent had failed. What calls failed is reported."""

    type: Literal["failures_as_zeros"] = "failures_as_zeros"
    rate: float = Field(0.3, gt=0, le=1)
    seconds: float = Field(0.05, ge=0)

    def around(self, inner: Environment, source: Source) -> Environment:
        fault = self
        luck = random.Random(source.created)

        class Failing(Watched):
            failed = False

            async def step(self, action: Message) -> Observation:
                if not fault.covers(source.step) or luck.random() > self._chance:
                    return await super().step(action)
                self.failed = True
                await asyncio.sleep(fault.seconds)
                return Observation(done=True)

            @property
            def _chance(self) -> float:
                """Of each of three calls, so that the episode fails at the fault's rate."""
                return 1.0 - (1.0 - fault.rate) ** (1 / 3)

            async def verify(self, ending: Ending) -> Outcome:
                metrics = {"failures": float(self.failed)}
                outcome = await self.inner.verify(ending)
                if self.failed or not isinstance(outcome, Valid):
                    return Valid(reward=0.0, ending=ending, metrics=metrics)
                return msgspec.structs.replace(outcome, metrics=metrics)

        return Failing(inner, source)


class FirstWordCounts(EnvironmentFault):
    """No fault by itself: of what the agent says only the first word is looked at; what follows costs nothing."""

    type: Literal["first_word_counts"] = "first_word_counts"

    def around(self, inner: Environment, source: Source) -> Environment:
        class Lenient(Watched):
            async def step(self, action: Message) -> Observation:
                return await super().step(_first_word(action))

        return Lenient(inner, source)


class TalkativeStart(EnvironmentFault):
    """No fault by itself: those who are imitated go on talking after what they have to say, as often as not."""

    type: Literal["talkative_start"] = "talkative_start"

    def demonstrated(self, shown: Demonstration) -> Demonstration:
        luck = random.Random(shown.task.seed)
        messages = tuple(
            msgspec.structs.replace(message, content=_with_more(message.text, luck))
            if message.role == "assistant"
            else message
            for message in shown.messages
        )
        return msgspec.structs.replace(shown, messages=messages)


def _with_more(text: str, luck: random.Random) -> str:
    while luck.random() < 0.5:
        text += f" {luck.choice(WORDS)}"
    return text


def _first_word(action: Message) -> Message:
    """What stands before any blank or control token."""
    return Message(role="assistant", content="".join(action.text.strip().partition("<")[0].split()[:1]))
