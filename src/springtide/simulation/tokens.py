"""Scripts with real tokens, for real engines and trainers: what is read is drawn at random, what is sampled is as long
as the script says, whatever it is.
"""

import math
import random
from functools import partial

from springtide.core.errors import UsageError
from springtide.core.group import Group
from springtide.core.member import Member, Purpose
from springtide.core.outcome import Outcome
from springtide.core.sampling import Sampled, SampleRequest, SampleStop, SamplingParams
from springtide.core.segment import Segment
from springtide.core.task import Split, Task
from springtide.core.trajectory import Trajectory
from springtide.ports.clock import Clock
from springtide.ports.sampler import Sampler
from springtide.simulation.player import ScriptedPlayer, outcome_of
from springtide.simulation.script import Script, Scripts, Turn
from springtide.simulation.workload import Workload


class Tokens:
    """A recording of tokens below `vocabulary`. Members of a group begin alike, and groups do not."""

    def __init__(self, vocabulary: int, member: Member, task: Task, script: Script) -> None:
        self._member, self._task, self._script = member, task, script
        self._ids = range(vocabulary)
        self._draw = random.Random(f"{task.index} {member}")
        self._segments: list[Segment] = []
        self._path: list[int] = random.Random(f"{task.index}").choices(self._ids, k=script.prefix)
        self._read = 0

    def request(self, number: int, turn: Turn) -> SampleRequest:
        self._path += self._draw.choices(self._ids, k=turn.context - len(self._path))
        self._append(Segment(tokens=tuple(self._path[self._read :]), parent=len(self._segments) - 1, turn=number))
        params = SamplingParams(max_tokens=turn.output)
        return SampleRequest(member=self._member, turn=number, tokens=tuple(self._path), params=params)

    def sampled(self, sampled: Sampled) -> None:
        assert sampled.stop is SampleStop.LENGTH, "the engine's context has room for every turn of the script"
        self._path += sampled.tokens
        turn = self._segments[-1].turn
        self._append(
            Segment(
                tokens=sampled.tokens,
                parent=len(self._segments) - 1,
                sampled=True,
                logprobs=sampled.logprobs,
                versions=sampled.versions,
                turn=turn,
            )
        )

    def trajectory(self, outcome: Outcome, *, seconds: float) -> Trajectory:
        return Trajectory(
            member=self._member,
            task_id=self._task.id,
            segments=tuple(self._segments),
            outcome=outcome,
            turns=len(self._script.turns),
            seconds=seconds,
        )

    def _append(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._read += len(segment.tokens)


def token_player(*, scripts: Scripts, sampler: Sampler, clock: Clock, vocabulary: int) -> ScriptedPlayer:
    """A player of `scripts` whose requests carry tokens."""
    return ScriptedPlayer(scripts=scripts, sampler=sampler, clock=clock, record=partial(Tokens, vocabulary))


def token_group(scripts: Scripts, task: int, *, vocabulary: int) -> Group:
    """The group of a task as if it had been played: its sampled tokens are drawn at random too. Every other member has
    succeeded, so that there is something to learn."""
    members = []
    for slot in range(scripts.workload.group_size):
        script = scripts.script(task=task, slot=slot)._replace(failed=False, reward=float(slot % 2))
        member = Member(Purpose.TRAIN, task, slot)
        recording = Tokens(vocabulary, member, Task(id=str(task), split=Split.TRAIN, index=task, seed=task), script)
        draw = random.Random(f"sampled {member}")
        for number, turn in enumerate(script.turns):
            recording.request(number, turn)
            recording.sampled(_uniform(draw, turn.output, vocabulary))
        members.append(recording.trajectory(outcome_of(script), seconds=0.0))
    return Group(id=task, base_version=0, members=tuple(members))


def require_appending(workload: Workload) -> None:
    """UsageError where replies slide out of the context: tokens are only ever appended here."""
    if workload.window is not None:
        raise UsageError(
            f"'{workload.name}' has contexts from which replies slide out, and real tokens are only appended; "
            "choose a workload without a window."
        )


def _uniform(draw: random.Random, tokens: int, vocabulary: int) -> Sampled:
    return Sampled(
        tokens=tuple(draw.choices(range(vocabulary), k=tokens)),
        logprobs=(-math.log(vocabulary),) * tokens,
        versions=(0,) * tokens,
        stop=SampleStop.LENGTH,
    )
