"""What answers the agent. One object plays one episode: reset, then step until done, then verify, then close.

The contract is asynchronous and multi-turn, speaks chat messages (images included) and tool schemas, and grades with
a typed outcome. An exception is never a reward: `InvalidEpisodeError` says whose fault it was, anything else counts
as the harness's.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from springtide.core.demonstration import Demonstration
from springtide.core.message import Message, ToolSchema
from springtide.core.outcome import Ending, Outcome
from springtide.core.task import Task
from springtide.core.trajectory import Trajectory


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says. `tools` is read at reset only. `ending` tells why when `done`."""

    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSchema, ...] = ()
    done: bool = False
    ending: Ending = Ending.ANSWERED


class PhaseLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds after which a phase counts as hung: Invalid, cause infrastructure.

    They are backstops for the machinery. Limits that bind the agent (a command's time) belong to the task and end in
    a valid failure.
    """

    reset: float = 60.0
    step: float = 60.0
    verify: float = 60.0
    close: float = 10.0


@runtime_checkable
class Environment(Protocol):
    async def reset(self, task: Task) -> Observation:
        """Set the stage for `task`; the messages are the prompt (system and user)."""
        ...

    async def step(self, action: Message) -> Observation:
        """Answer the assistant message `action`."""
        ...

    async def verify(self, ending: Ending) -> Outcome:
        """Grade the resulting state. Called once, after the last step, also when the episode ran into a limit."""
        ...

    async def close(self) -> None:
        """Free all resources. Called exactly once, after any phase, also when a phase failed."""
        ...


class EnvironmentSource(Protocol):
    """Makes environments and tasks. Shared by all episodes of a run.

    `scores_groups`: rewards depend on a whole group, so `score_group` is asked before a training group counts as
    complete. Evaluation plays single episodes, whose own outcomes count. `tool_replies_only`: while an episode lasts,
    `step` answers with tool messages and nothing else, also where a call could not be read.
    """

    limits: PhaseLimits
    scores_groups: bool
    tool_replies_only: bool

    def task(self, *, purpose: str, index: int) -> Task:
        """Task number `index` of the training (`train`) or evaluation (`evaluate`) stream; pure, unbounded."""
        ...

    async def open(self) -> None:
        """Acquire what episodes share (a sandbox pool, a server)."""
        ...

    def demonstration(self, index: int) -> Demonstration | None:
        """Demonstration number `index`, on training tasks only; pure, unbounded. None if there are none to imitate."""
        ...

    def create(self) -> Environment:
        """A fresh environment for one episode."""
        ...

    async def score_group(self, members: Sequence[Trajectory]) -> Sequence[Outcome]:
        """The outcomes of a whole group, in slot order, with sight of all members. Never raises: what fails is
        `Invalid`. A member that was invalid stays so."""
        ...

    async def close(self) -> None: ...
