"""Text environments with the Gymnasium signature, as they are.

`reset(seed=...) -> (observation, info)`; `step(text) -> (observation, reward, terminated, truncated, info)`, both
observations text. Truncation is the agent's turn limit: a valid ending.
"""

from typing import Any, Literal, Protocol

from springtide.core.message import Message
from springtide.core.outcome import Ending, Outcome, Valid
from springtide.core.task import Task
from springtide.environments.hooks import Hooks
from springtide.ports.environment import Observation


class GymText(Protocol):
    def reset(self, *, seed: int) -> tuple[Any, Any]: ...

    def step(self, action: str, /) -> tuple[Any, Any, Any, Any, Any]: ...


class GymTextEnvironment:
    """Plays `inner`. `reward`: the sum over the steps, or the last step's. `blocking`: on a thread."""

    def __init__(self, inner: GymText, *, reward: Literal["sum", "last"] = "sum", blocking: bool = False) -> None:
        self._inner = inner
        self._mode = reward
        self._hooks = gym_hooks(type(inner), blocking=blocking)
        self._reward = 0.0

    async def reset(self, task: Task) -> Observation:
        seed = task.seed & 0x7FFFFFFF  # many generators take 31 bits; the split is the lowest
        observation, _ = await self._hooks.call("reset", lambda: self._inner.reset(seed=seed))
        return Observation(messages=(_message(observation),))

    async def step(self, action: Message) -> Observation:
        taken = await self._hooks.call("step", lambda: self._inner.step(action.text.strip()))
        observation, reward, terminated, truncated, _ = taken
        self._reward = reward if self._mode == "last" else self._reward + reward
        over = bool(terminated or truncated)
        ending = Ending.TURN_LIMIT if truncated and not terminated else Ending.ANSWERED
        return Observation(messages=(_message(observation),), done=over, ending=ending)

    async def verify(self, ending: Ending) -> Outcome:
        return Valid(reward=self._reward, ending=ending)

    async def close(self) -> None:
        close = getattr(self._inner, "close", None)
        if close is not None:
            await self._hooks.call("close", close)


def gym_hooks(found: type[Any], *, blocking: bool) -> Hooks:
    return Hooks(found.__name__, blocking=blocking, remedy="set environment.blocking = true")


def _message(observation: Any) -> Message:
    if not isinstance(observation, str):
        raise TypeError(f"the observation is {type(observation).__name__}, not text")
    return Message(role="user", content=observation)
