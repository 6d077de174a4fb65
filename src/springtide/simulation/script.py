"""What will happen in an episode, drawn before it is played and independent of how it is scheduled.

All of it follows from (workload, seed, task, slot, attempt): every policy under comparison meets the same episodes.
"""

import random
from collections.abc import Iterator
from math import inf
from statistics import NormalDist
from typing import NamedTuple

from springtide.core.member import Member
from springtide.simulation.distribution import Bounded
from springtide.simulation.workload import Workload

_NORMAL = NormalDist()


class Turn(NamedTuple):
    """One turn of the agent. Tokens, seconds.

    `context` is what is presented, and its first `reusable` tokens are those of the previous turn's context and output
    (0 at the first turn): the rest has to be prefilled even if all earlier KV is at hand.
    """

    context: int
    reusable: int
    output: int
    latency: float
    """Of the environment, after the output."""


class Script(NamedTuple):
    """An episode. `failed`: its last turn's latency ends in an infrastructure failure, so it has no reward."""

    shared: int
    """Leading tokens of the first context that every episode of the workload has."""
    prefix: int
    """Leading tokens of the first context that the group's members share."""
    reset: float
    turns: tuple[Turn, ...]
    grade: float
    reward: float
    failed: bool
    trained: tuple[int, ...]
    """Lengths of the sequences that the trainer has to process: one, or one per turn where a window slides."""

    @property
    def sampled(self) -> int:
        return sum(turn.output for turn in self.turns)


class Scripts:
    """The scripts of one run of a workload."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload = workload
        self._seed = seed
        self._pauses: dict[Member, list[float]] = {}

    def script(self, *, task: int, slot: int, attempt: int = 1) -> Script:
        work = self.workload
        common = random.Random(f"{work.name} {self._seed} task {task}")
        effect = {name: common.gauss() for name in ("turns", "latency", "output")}
        task_tokens = _whole(work.task, common.random())
        solvable = common.random()
        own = random.Random(f"{work.name} {self._seed} task {task} slot {slot} attempt {attempt}")
        wanted = _whole(work.turns, _mixed(effect["turns"], own.gauss(), work.turns_shared))
        prefix = work.system + task_tokens
        reset = work.reset.quantile(own.random())
        changed = work.change_at is not None and task >= work.change_at
        longer = work.change_output if changed else 1.0
        turns = list(self._turns(prefix, wanted, own, effect, longer))
        factor = work.latency_factor * (work.change_latency if changed else 1.0)
        if factor != 1.0:
            turns = [turn._replace(latency=factor * turn.latency) for turn in turns]
        failed = own.random() < work.failure
        if failed:
            place = own.randrange(len(turns))
            turns = turns[: place + 1]
            turns[-1] = turns[-1]._replace(latency=work.failure_seconds.quantile(own.random()))
        return Script(
            shared=work.system,
            prefix=prefix,
            reset=reset,
            turns=tuple(turns),
            grade=work.grade.quantile(own.random()),
            reward=float(own.random() < solvable),
            failed=failed,
            trained=tuple(_trained(turns, windowed=work.window is not None)),
        )

    def pause(self, member: Member, turn: int) -> float:
        """Seconds from the end of a member's turn to its next; infinite if there is none."""
        turns = self._pauses.get(member)
        if turns is None:
            script = self.script(task=member.group, slot=member.slot, attempt=member.attempt)
            turns = self._pauses[member] = [each.latency for each in script.turns[:-1]]
        return turns[turn] if turn < len(turns) else inf

    def _turns(
        self, prefix: int, wanted: int, own: random.Random, effect: dict[str, float], longer: float
    ) -> Iterator[Turn]:
        """Up to `wanted` turns, of `longer` times the output; fewer if the context is full before."""
        work = self.workload
        outputs: list[int] = []
        seen: list[int] = [_whole(work.append, own.random())] if work.window is not None else []
        context = prefix + sum(seen)
        reusable = 0
        for _ in range(max(1, wanted)):
            drawn = _whole(work.output, _mixed(effect["output"], own.gauss(), work.output_shared))
            output = max(1, round(longer * drawn))
            output = min(output, work.context - context)
            if output <= 0:
                return
            latency = work.latency.quantile(_mixed(effect["latency"], own.gauss(), work.latency_shared))
            yield Turn(context, reusable, output, latency)
            outputs.append(output)
            seen.append(_whole(work.append, own.random()))
            reusable = context + output
            context = reusable + seen[-1]
            if work.window is not None and len(seen) > work.window:
                # The oldest image goes, and with it every token's place behind it.
                reusable = prefix + sum(outputs[: len(seen) - work.window - 1])
                context = prefix + sum(outputs) + sum(seen[-work.window :])


def _trained(turns: list[Turn], *, windowed: bool) -> Iterator[int]:
    for turn in turns if windowed else turns[-1:]:
        yield turn.context + turn.output


def _whole(distribution: Bounded, u: float) -> int:
    return round(distribution.quantile(u))


def _mixed(shared: float, own: float, share: float) -> float:
    """A uniform number of which `share` of the normal variance is the group's."""
    return _NORMAL.cdf(share**0.5 * shared + (1 - share) ** 0.5 * own)
