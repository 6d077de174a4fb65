"""Environments in a few lines: text in, text out, no asyncio.

A subclass says how an episode starts and what it replies; everything else has a default. The same two hooks make the
demonstrations of a warm start: a demonstration is the subclass's own agent texts, played against its own replies, so
what is imitated and how it is graded is never written twice.
"""

import random
from collections.abc import Iterator
from typing import ClassVar

import msgspec

from springtide.core.demonstration import Demonstration
from springtide.core.message import Message
from springtide.core.outcome import Ending, Outcome, Valid
from springtide.core.task import Task
from springtide.environments.hooks import Hooks
from springtide.ports.environment import Observation

SUCCESS = 1.0
"""Reward from which a demonstration counts as a success."""

LONGEST_DEMONSTRATION = 1000
"""Turns after which a demonstration that its class does not limit counts as endless."""


class Reply(msgspec.Struct, frozen=True):
    """What the environment answers. An episode's reward is the sum over its replies."""

    text: str = ""
    reward: float = 0.0
    done: bool = False


class TextEnvironment:
    """Base class. Implement `start` and `reply`; one object plays one episode."""

    system: ClassVar[str] = ""
    """The system message; none if empty."""
    max_turns: ClassVar[int] = 0
    """Replies after which the episode ends with TURN_LIMIT; 0 leaves it to the recipe's `rollout.max_turns`."""
    blocking: ClassVar[bool] = False
    """The hooks wait or compute for long: run them on a thread, not on the loop that serves all episodes."""

    flaw: str = ""
    """`demonstrate` may name here the mistake that it makes."""
    __reward: float = 0.0
    __replies: int = 0

    def start(self, rng: random.Random) -> str:
        """The first user message. All randomness comes from `rng`, so that a task is the same whenever it is played."""
        raise NotImplementedError

    def reply(self, text: str) -> Reply:
        """Answer what the agent said (surrounding white space removed)."""
        raise NotImplementedError

    def demonstrate(self, rng: random.Random) -> Iterator[str]:
        """Optional: what an agent to imitate would say, one text per turn, after `start`. Mistakes are welcome, as
        long as RL can tell them from successes."""
        raise NotImplementedError

    async def reset(self, task: Task) -> Observation:
        return Observation(messages=await self._hooks.call("start", lambda: self._opening(task)))

    async def step(self, action: Message) -> Observation:
        return await self._hooks.call("reply", lambda: self._answer(action.text))

    async def verify(self, ending: Ending) -> Outcome:
        return Valid(reward=self.__reward, ending=ending)

    async def close(self) -> None:
        pass

    def demonstration(self, task: Task) -> Demonstration | None:
        """Play `demonstrate` on `task`; None for a class that does not implement it. Raises what the class raises."""
        if type(self).demonstrate is TextEnvironment.demonstrate:
            return None
        messages = [*self._opening(task)]
        for turn, text in enumerate(self.demonstrate(random.Random(f"demonstrate {task.seed}"))):
            if turn == LONGEST_DEMONSTRATION:
                raise RuntimeError(f"it does not end within {LONGEST_DEMONSTRATION} turns")
            if not isinstance(text, str):
                raise TypeError(f"it gave {type(text).__name__} {text!r}, not text")
            observation = self._answer(text)
            messages += [Message(role="assistant", content=text), *observation.messages]
            if observation.done:
                break
        success = self.__reward >= SUCCESS
        return Demonstration(task=task, messages=tuple(messages), success=success, flaw=self.flaw)

    @property
    def _hooks(self) -> Hooks:
        return text_hooks(type(self), blocking=self.blocking)

    def _opening(self, task: Task) -> tuple[Message, ...]:
        text = self.start(random.Random(task.seed))
        system = (Message(role="system", content=self.system),) if self.system else ()
        return (*system, Message(role="user", content=text))

    def _answer(self, text: str) -> Observation:
        reply = self.reply(text.strip())
        if not isinstance(reply, Reply):
            raise TypeError(f"reply returned {type(reply).__name__}, not a Reply")
        self.__reward += reply.reward
        self.__replies += 1
        exhausted = self.__replies == self.max_turns and not reply.done
        messages = () if reply.done and not reply.text else (Message(role="user", content=reply.text),)
        ending = Ending.TURN_LIMIT if exhausted else Ending.ANSWERED
        return Observation(messages=messages, done=reply.done or exhausted, ending=ending)


def text_hooks(found: type[TextEnvironment], *, blocking: bool) -> Hooks:
    return Hooks(found.__name__, blocking=blocking, remedy="set `blocking = True` in the class")
