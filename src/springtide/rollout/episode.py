"""An episode: one environment played by one policy, over two ports.

Token in, token out: what was sampled is appended as it was sampled, what the environment says is rendered once. The
trajectory is written here and only read afterwards. Any failure outside the agent's reach makes it `Invalid`; what was
recorded until then is kept for people to read.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from springtide.core.errors import InvalidEpisodeError, UsageError
from springtide.core.member import Member
from springtide.core.message import Message, ToolSchema
from springtide.core.outcome import Ending, Invalid, InvalidCause, Outcome
from springtide.core.sampling import SampleRequest, SampleStop, SamplingParams
from springtide.core.segment import Segment
from springtide.core.task import Task
from springtide.core.trajectory import EnvironmentTimes, Trajectory
from springtide.ports.clock import Clock
from springtide.ports.environment import Environment
from springtide.ports.sampler import Sampler
from springtide.rollout.config import RolloutConfig


class TurnRenderer(Protocol):
    """What an episode needs of a renderer; rollout/renderer.py is the real one."""

    stop_tokens: tuple[int, ...]

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> tuple[int, ...]: ...

    def continuation(self, messages: Sequence[Message], *, closed: bool = True) -> tuple[int, ...]: ...

    def parse(self, tokens: Sequence[int]) -> Message: ...


class EpisodePlayer(Protocol):
    """What the runtime needs of a player; `Player` is the real one, a simulation has its own."""

    async def play(self, member: Member, task: Task, environment: Environment, *, temperature: float) -> Trajectory:
        """One episode from reset to close. Never raises for what the agent, the environment or its verifier do."""
        ...


class Recording:
    """What an episode has written so far."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.messages: list[Message] = []
        self.tokens: list[int] = []
        self.turns = 0
        self.reset: list[float] = []
        self.steps: list[float] = []
        self.verify: list[float] = []
        """Seconds that the environment took, call by call."""

    @property
    def times(self) -> EnvironmentTimes:
        return EnvironmentTimes(reset=sum(self.reset), steps=tuple(self.steps), verify=sum(self.verify))

    def read(self, tokens: tuple[int, ...], messages: Sequence[Message]) -> None:
        self.messages.extend(messages)
        self._append(Segment(tokens=tokens, parent=len(self.segments) - 1, turn=self.turns))

    def sampled(
        self, tokens: tuple[int, ...], logprobs: tuple[float, ...], versions: tuple[int, ...], message: Message
    ) -> None:
        self.messages.append(message)
        self._append(
            Segment(
                tokens=tokens,
                parent=len(self.segments) - 1,
                sampled=True,
                logprobs=logprobs,
                versions=versions,
                turn=self.turns,
            )
        )
        self.turns += 1

    def _append(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.tokens.extend(segment.tokens)


class Player:
    """Plays episodes. Shared by all of them; holds no state of any."""

    def __init__(self, *, sampler: Sampler, renderer: TurnRenderer, config: RolloutConfig, clock: Clock) -> None:
        self._sampler = sampler
        self._renderer = renderer
        self._config = config
        self._clock = clock

    async def play(self, member: Member, task: Task, environment: Environment, *, temperature: float) -> Trajectory:
        """One episode from reset to close. Never raises for what the agent, the environment or its verifier do."""
        started = self._clock.now()
        recording = Recording()
        try:
            ending = await self._turns(member, task, environment, recording, temperature)
            with self._timed(recording.verify):
                outcome = await environment.verify(ending)
        except InvalidEpisodeError as error:
            outcome = Invalid(cause=InvalidCause(error.cause), detail=error.detail)
        except UsageError as error:  # messages that this model's template does not take
            outcome = Invalid(cause=InvalidCause.HARNESS, detail=str(error))
        finally:
            await environment.close()
        return self._trajectory(member, task, recording, outcome, self._clock.now() - started)

    async def _turns(
        self, member: Member, task: Task, environment: Environment, recording: Recording, temperature: float
    ) -> Ending:
        with self._timed(recording.reset):
            observation = await environment.reset(task)
        recording.read(self._renderer.prompt(observation.messages, observation.tools), observation.messages)
        self._require_room(len(recording.tokens))
        while True:
            room = self._config.max_context - len(recording.tokens)
            if room < 1:
                return Ending.CONTEXT_LIMIT
            stop, action = await self._sample(member, recording, room, temperature)
            if stop is SampleStop.CONTEXT or (stop is SampleStop.LENGTH and room <= self._config.max_tokens_per_turn):
                return Ending.CONTEXT_LIMIT
            with self._timed(recording.steps):
                observation = await environment.step(action)
            if observation.done:
                recording.messages.extend(observation.messages)
                return observation.ending
            if recording.turns == self._config.max_turns:
                recording.messages.extend(observation.messages)
                return Ending.TURN_LIMIT
            closed = stop is SampleStop.STOP_TOKEN
            continuation = self._renderer.continuation(observation.messages, closed=closed)
            recording.read(continuation, observation.messages)

    @contextmanager
    def _timed(self, seconds: list[float]) -> Iterator[None]:
        begun = self._clock.now()
        try:
            yield
        finally:
            seconds.append(self._clock.now() - begun)

    def _require_room(self, prompt: int) -> None:
        """A prompt that leaves nothing to say is no failure of the agent."""
        limit = self._config.max_context
        if prompt >= limit:
            raise InvalidEpisodeError(
                InvalidCause.HARNESS,
                f"the task's prompt of {prompt} tokens leaves no room in rollout.max_context = {limit}: raise it.",
            )

    async def _sample(
        self, member: Member, recording: Recording, room: int, temperature: float
    ) -> tuple[SampleStop, Message]:
        params = SamplingParams(
            max_tokens=min(self._config.max_tokens_per_turn, room),
            temperature=temperature,
            top_k=self._config.top_k,
            top_p=self._config.top_p,
            stop_tokens=self._renderer.stop_tokens,
        )
        request = SampleRequest(member=member, turn=recording.turns, tokens=tuple(recording.tokens), params=params)
        sampled = await self._sampler.sample(request)
        action = self._renderer.parse(sampled.tokens)
        recording.sampled(sampled.tokens, sampled.logprobs, sampled.versions, action)
        return sampled.stop, action

    def _trajectory(
        self, member: Member, task: Task, recording: Recording, outcome: Outcome, seconds: float
    ) -> Trajectory:
        return Trajectory(
            member=member,
            task_id=task.id,
            segments=tuple(recording.segments),
            messages=tuple(recording.messages),
            outcome=outcome,
            turns=recording.turns,
            seconds=seconds,
            environment=recording.times,
        )
