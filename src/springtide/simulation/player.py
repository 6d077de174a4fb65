"""Plays scripts: the episode of a simulation, over the same Sampler port as a real one."""

from springtide.core.member import Member
from springtide.core.outcome import Ending, Invalid, InvalidCause, Outcome, Valid
from springtide.core.segment import Segment
from springtide.core.task import Task
from springtide.core.trajectory import Trajectory
from springtide.ports.clock import Clock
from springtide.ports.environment import Environment
from springtide.ports.sampler import Sampler
from springtide.simulation.barrier import TurnBarrier
from springtide.simulation.script import Script, Scripts
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


class ScriptedPlayer:
    """Takes the environment's time by sleeping, and the engine's by asking for tokens.

    With a `barrier` the next turns of all episodes begin together, when the last environment has answered.
    """

    def __init__(self, *, scripts: Scripts, sampler: Sampler, clock: Clock, barrier: TurnBarrier | None = None) -> None:
        self._scripts = scripts
        self._sampler = sampler
        self._clock = clock
        self._barrier = barrier

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
        await self._clock.sleep(script.reset)
        counts: list[tuple[int, int]] = []
        for number, turn in enumerate(script.turns):
            if self._barrier is not None:
                await self._barrier.arrive()
            request = ModelledRequest(
                member=member,
                turn=number,
                context=turn.context,
                reusable=turn.reusable,
                output=turn.output,
                prefix=script.prefix,
                shared=script.shared,
            )
            sampled = await self._sampler.sample(request)
            assert isinstance(sampled, ModelledSample)
            counts += sampled.counts
            await self._clock.sleep(turn.latency)
        if not script.failed:
            await self._clock.sleep(script.grade)
        return ModelledTrajectory(
            member=member,
            task_id=task.id,
            outcome=_outcome(script),
            turns=len(script.turns),
            seconds=self._clock.now() - started,
            counts=tuple(_merged(counts)),
            lengths=script.trained,
        )


def _outcome(script: Script) -> Outcome:
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
