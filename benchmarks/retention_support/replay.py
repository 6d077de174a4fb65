"""Plays scripts of sessions against the real engine: what the environment says, how long it takes and how long the
policy speaks are drawn before anything runs, so that whatever is compared meets the same episodes.

What the policy samples is real and is trained on; the environment's time is slept, and takes no CPU.
"""

import random
from typing import Any

from springtide.core.member import Member
from springtide.core.outcome import Ending, Valid
from springtide.core.sampling import SampleRequest, SamplingParams
from springtide.core.segment import Segment
from springtide.core.task import Task
from springtide.core.trajectory import Trajectory
from springtide.ports.clock import Clock
from springtide.ports.environment import Environment
from springtide.ports.sampler import Sampler
from springtide.simulation.script import Script, Scripts
from springtide.simulation.workload import Workload

TEXT = range(32, 256)
"""Token ids that every byte-level vocabulary has, and that are not special."""


class Replayer:
    """An `EpisodePlayer` that asks for tokens like the real one, and leaves the environment that it is given alone."""

    def __init__(self, *, workload: Workload, seed: int, sampler: Sampler, clock: Clock) -> None:
        self._scripts = Scripts(workload, seed)
        self._seed = seed
        self._sampler = sampler
        self._clock = clock

    async def play(self, member: Member, task: Task, environment: Environment, *, temperature: float) -> Trajectory:
        started = self._clock.now()
        script = self._scripts.script(task=task.index, slot=member.slot, attempt=member.attempt)
        await self._clock.sleep(script.reset)
        segments = await self._turns(member, task, script, temperature)
        await environment.close()
        return Trajectory(
            member=member,
            task_id=task.id,
            segments=tuple(segments),
            messages=(),
            outcome=Valid(reward=self._reward(member, task), ending=Ending.ANSWERED),
            turns=len(script.turns),
            seconds=self._clock.now() - started,
        )

    async def _turns(self, member: Member, task: Task, script: Script, temperature: float) -> list[Segment]:
        said = random.Random(f"replay {self._seed} {task.index} {member.slot} {member.attempt}")
        tokens = self._prompt(task, script)
        segments = [Segment(tokens=tuple(tokens))]
        for number, turn in enumerate(script.turns):
            if number:
                read = tuple(self._text(said, turn.context - len(tokens)))
                tokens += read
                segments.append(Segment(tokens=read, parent=len(segments) - 1, turn=number))
            params = SamplingParams(max_tokens=turn.output, temperature=temperature)
            request = SampleRequest(member=member, turn=number, tokens=tuple(tokens), params=params)
            sampled = await self._sampler.sample(request)
            tokens += sampled.tokens
            written = {"tokens": sampled.tokens, "logprobs": sampled.logprobs, "versions": sampled.versions}
            segments.append(Segment(parent=len(segments) - 1, sampled=True, turn=number, **written))
            await self._clock.sleep(turn.latency)
        return segments

    def _prompt(self, task: Task, script: Script) -> list[int]:
        """The same for every member of a group, and its beginning for all."""
        shared = self._text(random.Random(f"system {self._seed}"), script.shared)
        return shared + self._text(random.Random(f"task {self._seed} {task.index}"), script.prefix - script.shared)

    def _text(self, source: random.Random, count: int) -> list[int]:
        return [source.choice(TEXT) for _ in range(count)]

    def _reward(self, member: Member, task: Task) -> float:
        """No two members of a group earn the same, so that every sampled token is trained on."""
        return random.Random(f"reward {self._seed} {task.index} {member.slot}").random()


def replayer(workload: Workload, seed: int) -> Any:
    """What stands in the place of the real player's class when a run is wired."""

    def make(*, sampler: Sampler, clock: Clock, **_: Any) -> Replayer:
        return Replayer(workload=workload, seed=seed, sampler=sampler, clock=clock)

    return make
