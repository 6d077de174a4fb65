"""What will happen in an episode, known before it is played and independent of how it is scheduled.

All of it follows from (workload, seed, task, slot, attempt): every policy under comparison meets the same episodes.
"""

from abc import ABC, abstractmethod
from math import inf
from typing import NamedTuple

from pydantic import Field

from springtide.core.member import Member
from springtide.scheduling.config import StrictModel


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


class Work(StrictModel, ABC):
    """What is played: a workload whose episodes are drawn, or one whose episodes were recorded."""

    name: str
    about: str
    latency_factor: float = Field(1.0, gt=0, description="By which all latencies are longer than drawn.")
    group_size: int = Field(8, ge=1)
    groups_per_step: int = Field(64, ge=1)
    updates_per_step: int = Field(
        1, ge=1, description="Optimizer updates that a step's groups are divided into (mini-batches)."
    )

    @property
    @abstractmethod
    def longest(self) -> int:
        """Most tokens of context and output at a turn."""

    @abstractmethod
    def script(self, *, seed: int, task: int, slot: int, attempt: int) -> Script:
        """Pure: the same arguments, the same episode."""


class Scripts:
    """The scripts of one run of a workload."""

    def __init__(self, workload: Work, seed: int) -> None:
        self.workload = workload
        self._seed = seed
        self._pauses: dict[Member, list[float]] = {}

    def script(self, *, task: int, slot: int, attempt: int = 1) -> Script:
        return self.workload.script(seed=self._seed, task=task, slot=slot, attempt=attempt)

    def pause(self, member: Member, turn: int) -> float:
        """Seconds from the end of a member's turn to its next; infinite if there is none."""
        turns = self._pauses.get(member)
        if turns is None:
            script = self.script(task=member.group, slot=member.slot, attempt=member.attempt)
            turns = self._pauses[member] = [each.latency for each in script.turns[:-1]]
        return turns[turn] if turn < len(turns) else inf
