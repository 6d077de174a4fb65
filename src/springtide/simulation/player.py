"""Plays scripts: the episode of a simulation, over the same Sampler port as a real one."""

from collections.abc import Callable
from typing import Protocol

from springtide.core.member import Member
from springtide.core.outcome import Ending, Invalid, InvalidCause, Outcome, Valid
from springtide.core.sampling import Sampled, SampleRequest
from springtide.core.segment import Segment
from springtide.core.task import Task
from springtide.core.trajectory import Trajectory
from springtide.ports.clock import Clock
from springtide.ports.environment import Environment
from springtide.ports.sampler import Sampler
from springtide.simulation.barrier import TurnBarrier
from springtide.simulation.script import Script, Scripts, Turn
from springtide.simulation.turn import ModelledRequest, ModelledSample


class ModelledTrajectory(Trajectory, frozen=True, kw_only=True):
    """A trajectory as counts. `counts` are (version, sampled tokens); `lengths` of the sequences to train on."""

    segments: tuple[Segment, ...] = ()
    counts: tuple[tuple[int, int], ...]
    lengths: tuple[int, ...]

    @property
    def trained_tokens(self) -> int:
        return sum(tokens for _, tokens in self.counts)

    @property
    def oldest_version(self) -> int | None:
        return min((version for version, _ in self.counts), default=None)


class Recording(Protocol):
    """What an episode asks of the engine, and what it keeps of the answers."""

    def request(self, number: int, turn: Turn) -> SampleRequest:
        """The request of its turn `number`."""
        ...

    def sampled(self, sampled: Sampled) -> None: ...

    def trajectory(self, outcome: Outcome, *, seconds: float) -> Trajectory: ...


class Counts:
    """A recording without any tokens."""

    def __init__(self, member: Member, task: Task, script: Script) -> None:
        self._member, self._task, self._script = member, task, script
        self._counts: list[tuple[int, int]] = []

    def request(self, number: int, turn: Turn) -> ModelledRequest:
        return ModelledRequest(
            member=self._member,
            turn=number,
            context=turn.context,
            reusable=turn.reusable,
            output=turn.output,
            prefix=self._script.prefix,
            shared=self._script.shared,
        )

    def sampled(self, sampled: Sampled) -> None:
        assert isinstance(sampled, ModelledSample)
        self._counts += sampled.counts

    def trajectory(self, outcome: Outcome, *, seconds: float) -> ModelledTrajectory:
        return ModelledTrajectory(
            member=self._member,
            task_id=self._task.id,
            outcome=outcome,
            turns=len(self._script.turns),
            seconds=seconds,
            counts=tuple(_merged(self._counts)),
            lengths=self._script.trained,
        )


class ScriptedPlayer:
    """Takes the environment's time by sleeping, and the engine's by asking for tokens.

    With a `barrier` the next turns of all episodes begin together, when the last environment has answered. `record`
    makes the recording of an episode.
    """

    def __init__(
        self,
        *,
        scripts: Scripts,
        sampler: Sampler,
        clock: Clock,
        barrier: TurnBarrier | None = None,
        record: Callable[[Member, Task, Script], Recording] = Counts,
    ) -> None:
        self._scripts = scripts
        self._sampler = sampler
        self._clock = clock
        self._barrier = barrier
        self._record = record

    async def play(self, member: Member, task: Task, environment: Environment, *, temperature: float) -> Trajectory:
        if self._barrier is None:
            return await self._play(member, task)
        self._barrier.enter()
        try:
            return await self._play(member, task)
        finally:
            self._barrier.leave()

    async def _play(self, member: Member, task: Task) -> Trajectory:
        started = self._clock.now()
        script = self._scripts.script(task=task.index, slot=member.slot, attempt=member.attempt)
        recording = self._record(member, task, script)
        await self._clock.sleep(script.reset)
        for number, turn in enumerate(script.turns):
            if self._barrier is not None:
                await self._barrier.arrive()
            recording.sampled(await self._sampler.sample(recording.request(number, turn)))
            await self._clock.sleep(turn.latency)
        if not script.failed:
            await self._clock.sleep(script.grade)
        return recording.trajectory(outcome_of(script), seconds=self._clock.now() - started)


def outcome_of(script: Script) -> Outcome:
    if script.failed:
        return Invalid(cause=InvalidCause.INFRASTRUCTURE, detail="the environment timed out")
    return Valid(reward=script.reward, ending=Ending.ANSWERED)


def _merged(counts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbours of one version as one."""
    merged: list[tuple[int, int]] = []
    for version, tokens in counts:
        if merged and merged[-1][0] == version:
            merged[-1] = version, merged[-1][1] + tokens
        else:
            merged.append((version, tokens))
    return merged
