"""Whatever an environment does becomes a typed result.

An exception, a phase that hangs or a value that is not what the contract says ends the episode as `Invalid`, with one
sentence that names the phase; it never becomes a reward and never escapes. Every environment of a source is wrapped in
this. Phases run as tasks of their own, so that an environment that swallows cancellation is left behind, not waited
for. `close` runs once, after anything, and never raises; the first time that it fails, a warning says so.
"""

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from numbers import Real
from typing import Any, TypeVar, get_args

import msgspec

from springtide.core.errors import InvalidEpisodeError
from springtide.core.message import ImagePart, Message, Role, TextPart, ToolSchema
from springtide.core.outcome import Ending, Invalid, InvalidCause, Outcome, Valid
from springtide.core.task import Task
from springtide.core.trajectory import Trajectory
from springtide.environments.hooks import Hooks
from springtide.ports.environment import Environment, Observation, PhaseLimits

LOGGER = logging.getLogger("springtide.environments")

T = TypeVar("T")

_GRACE = 1.0
"""Seconds that a cancelled phase gets to clean up before it is left behind."""
_ROLES = frozenset(get_args(Role))

_unclosed: set[str] = set()
"""Classes of which a warning said already that closing them fails."""


class GuardedEnvironment:
    """An Environment around what `create` makes. `reset` and `step` raise InvalidEpisodeError and nothing else;
    `verify` returns an outcome. `hooks` names the class for people, and tells where its constructor runs.
    `tool_replies_only`: what it declared about the messages of `step`."""

    def __init__(
        self,
        create: Callable[[], Environment],
        limits: PhaseLimits,
        hooks: Hooks | None = None,
        *,
        tool_replies_only: bool = False,
    ) -> None:
        self._create = create
        self._limits = limits
        self._hooks = hooks
        self._tool_replies_only = tool_replies_only
        self._inner: Environment | None = None
        self._closed = False

    async def reset(self, task: Task) -> Observation:
        def create() -> Environment:
            # Kept here and not by whoever waits for it: so it is closed also if a thread makes it too late.
            self._inner = self._create()
            return self._inner

        async def begin() -> Observation:
            inner = await self._hooks.call("__init__", create) if self._hooks is not None else create()
            return await inner.reset(task)

        value = await self._phase("reset", begin, self._limits.reset)
        observation = _observation("reset", value)
        if observation.done or not observation.messages:
            raise _harness("reset returned an episode that is over or has no messages.")
        return observation

    async def step(self, action: Message) -> Observation:
        inner = self._open()
        observation = _observation("step", await self._phase("step", lambda: inner.step(action), self._limits.step))
        if not (observation.done or observation.messages):
            raise _harness("step returned neither messages nor the end of the episode.")
        if any(message.role == "assistant" for message in observation.messages):
            raise _harness("step returned a message with the role assistant, which is the agent's.")
        others = [message.role for message in observation.messages if message.role != "tool"]
        if self._tool_replies_only and others and not observation.done:
            raise _harness(
                f"step returned a message with the role {others[0]}, but the environment declares tool_replies_only: "
                "answer with tool messages, also what could not be read as a call."
            )
        return observation

    async def verify(self, ending: Ending) -> Outcome:
        inner = self._open()
        try:
            value = await self._phase("verify", lambda: inner.verify(ending), self._limits.verify)
            return _outcome("verify", value)
        except InvalidEpisodeError as error:
            return Invalid(cause=InvalidCause(error.cause), detail=error.detail)

    async def close(self) -> None:
        if self._closed or self._inner is None:
            return
        self._closed = True
        owner = self._hooks.owner if self._hooks is not None else type(self._inner).__name__
        await close_quietly(self._inner, owner=owner, seconds=self._limits.close)

    def _open(self) -> Environment:
        assert self._inner is not None, "reset comes first"
        return self._inner

    @staticmethod
    async def _phase(phase: str, call: Callable[[], Awaitable[T]], seconds: float) -> T:
        async def run() -> T:
            try:
                return await call()
            except SystemExit as error:  # a task passes it on to the loop, which would end the run
                raise _harness(f"SystemExit raised in {phase}: {error}.") from error

        task = asyncio.get_running_loop().create_task(run())
        try:
            await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            await _abandon(task)
            raise
        if not task.done():
            await _abandon(task)
            raise InvalidEpisodeError(InvalidCause.INFRASTRUCTURE, f"{phase} did not return within {seconds:g} s.")
        if task.cancelled():
            raise _harness(f"CancelledError raised in {phase}.")
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, InvalidEpisodeError):
            raise _typed(error)
        cause = InvalidCause.VERIFIER if phase in ("verify", "score_group") else InvalidCause.HARNESS
        described = f"{type(error).__name__} raised in {phase}: {error}".rstrip(": ")
        raise InvalidEpisodeError(cause, _storable(described))


async def close_quietly(inner: Environment, *, owner: str, seconds: float) -> None:
    """Close `inner`. What goes wrong is nobody's failure by now: it is logged, once for each class `owner`."""
    try:
        await GuardedEnvironment._phase("close", inner.close, seconds)
    except InvalidEpisodeError as error:
        if owner not in _unclosed:
            _unclosed.add(owner)
            LOGGER.warning("%s is not closed properly: %s (said once).", owner, error.detail.rstrip("."))


Scorer = Callable[[Sequence[Trajectory]], Awaitable[Sequence[Outcome] | None]]
"""Grades a whole group; None keeps the members' own outcomes."""


async def guarded_scores(scorer: Scorer, members: Sequence[Trajectory], *, seconds: float) -> list[Outcome]:
    """What `scorer` says of `members`; all Invalid if it fails. A member that was invalid stays so."""
    try:
        value = await GuardedEnvironment._phase("score_group", lambda: scorer(members), seconds)
        if value is None:
            return [member.outcome for member in members]
        if not isinstance(value, (tuple, list)) or len(value) != len(members):
            raise _harness(f"score_group returned {_shown(value)}, not one Outcome for each of {len(members)} members.")
        scores = [_outcome("score_group", each) for each in value]
    except InvalidEpisodeError as error:
        scores = [Invalid(cause=InvalidCause(error.cause), detail=error.detail)] * len(members)
    return [score if member.valid else member.outcome for score, member in zip(scores, members, strict=True)]


async def _abandon(task: asyncio.Task[Any]) -> None:
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    task.cancel()
    await asyncio.wait({task}, timeout=_GRACE)


def _typed(error: InvalidEpisodeError) -> InvalidEpisodeError:
    if error.cause in list(InvalidCause):
        return InvalidEpisodeError(InvalidCause(error.cause), _storable(str(error.detail)))
    return _harness(f"InvalidEpisodeError with the unknown cause {error.cause!r}: {error.detail}")


def _harness(detail: str) -> InvalidEpisodeError:
    return InvalidEpisodeError(InvalidCause.HARNESS, _storable(detail))


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode()[:500]


def _observation(phase: str, value: object) -> Observation:
    if not isinstance(value, Observation):
        raise _harness(f"{phase} returned {_shown(value)}, not an Observation.")
    if not isinstance(value.done, bool) or not isinstance(value.ending, Ending):
        raise _harness(f"{phase} returned an Observation whose done or ending has the wrong type.")
    messages, tools = value.messages, value.tools
    if not isinstance(messages, (tuple, list)) or not all(well_formed(message) for message in messages):
        raise _harness(f"{phase} returned messages that are not Messages with a known role and storable text.")
    if not isinstance(tools, (tuple, list)) or not all(isinstance(tool, ToolSchema) for tool in tools):
        raise _harness(f"{phase} returned tools that are not ToolSchemas.")
    observation = _stored(phase, msgspec.structs.replace(value, messages=tuple(messages), tools=tuple(tools)))
    if problem := not_json(observation.messages, observation.tools):
        raise _harness(f"{phase} returned {problem}.")
    return observation


def not_json(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> str:
    """Which tool or tool call is not JSON, as which models read it: no bytes, dates or numbers that are not finite.
    Empty if all are."""
    written = [(f"the tool '{tool.name}' with parameters", tool.parameters) for tool in tools]
    calls = [call for message in messages for call in message.tool_calls]
    written += [(f"a call of '{call.name}' with arguments", call.arguments) for call in calls]
    for what, value in written:
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            return f"{what} that are not JSON: {error}"
    return ""


def well_formed(message: object) -> bool:
    """Whether it is a Message with a known role and storable text."""
    if not isinstance(message, Message) or message.role not in _ROLES:
        return False
    parts = message.content if isinstance(message.content, (tuple, list)) else (TextPart(message.content),)
    return all(isinstance(part, ImagePart) or (isinstance(part, TextPart) and _text(part.text)) for part in parts)


def _text(value: object) -> bool:
    """Lone surrogates cannot be stored as UTF-8."""
    return isinstance(value, str) and value == _unsurrogated(value)


def _unsurrogated(value: str) -> str:
    return value.encode(errors="replace").decode()


def _outcome(phase: str, value: object) -> Outcome:
    if isinstance(value, Invalid):
        if value.cause not in list(InvalidCause) or not isinstance(value.detail, str):
            raise _harness(f"{phase} returned an Invalid without a known cause and a text.")
        return _stored(phase, value)
    if not isinstance(value, Valid):
        raise _harness(f"{phase} returned {_shown(value)}, not an Outcome.")
    if not _finite(value.reward):
        raise _harness(f"{phase} returned the reward {_shown(value.reward)}, not a finite number.")
    if not isinstance(value.ending, Ending) or not isinstance(value.metrics, dict):
        raise _harness(f"{phase} returned an Outcome whose ending or metrics has the wrong type.")
    for name, number in value.metrics.items():
        if not isinstance(name, str) or not _finite(number):
            raise _harness(f"{phase} returned the metric {name!r} as {_shown(number)}, not a finite number.")
    metrics = {name: float(number) for name, number in value.metrics.items()}
    return _stored(phase, msgspec.structs.replace(value, reward=float(value.reward), metrics=metrics))


def _stored(phase: str, value: T) -> T:
    """`value` as it comes back from the journal, of which every field has its type."""
    try:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))
    except (msgspec.MsgspecError, UnicodeError, OverflowError, TypeError, RecursionError) as error:
        raise _harness(f"{phase} returned a value that cannot be stored: {error}.") from error


def _finite(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _shown(value: object) -> str:
    return f"{type(value).__name__} {value!r}"[:80]
