"""Weights from verified groups. A trainer is driven from one lane and never awaits."""

from pathlib import Path
from typing import Any, Protocol

import msgspec

from springtide.core.group import Group
from springtide.core.version import PolicyVersion


class Passes(msgspec.Struct, frozen=True, kw_only=True):
    """Over so many `tokens` of sequences, which have `attended` tokens before them in sum; seconds that they took."""

    tokens: float = 0.0
    attended: float = 0.0
    seconds: float = 0.0


class StepWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a train step consisted of on one rank, or on a rank of several on average, and what that took.

    `actor`: forward and backward passes; `reference`: those of its reference that were made for the step, before it or
    in it. `swaps` move one model's weights in one direction.
    """

    actor: Passes = Passes()
    reference: Passes = Passes()
    updates: int = 0
    update_seconds: float = 0.0
    swaps: float = 0.0
    swap_seconds: float = 0.0


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """An applied optimizer step. `metrics` use canonical names (telemetry/names.py)."""

    step: int
    version: PolicyVersion
    trained_tokens: int
    zero_advantage_tokens: int = 0
    metrics: dict[str, float] = {}
    work: StepWork = StepWork()


class Trainer(Protocol):
    """`version.number` is the number of applied steps; version 0 is the warm-started policy."""

    @property
    def version(self) -> PolicyVersion: ...

    @property
    def exact(self) -> bool:
        """Whether the same step on the same groups gives the same weights, bit for bit."""
        ...

    def prepare(self, *, step: int, group: Group, ready: float, idle: bool) -> None:
        """`group`, complete since `ready` (seconds), will be in step `step`: do ahead what does not need the others.

        `idle`: no step was being trained then; otherwise the weights of one are waited for, and what is done now delays
        them. May come before the step ahead of it is applied, more than once, or not at all; it changes no result.
        """
        ...

    def step(self, *, step: int, groups: tuple[Group, ...]) -> StepReport:
        """Apply optimizer step `step` (1-based) on whole groups in this order.

        Where one of several ranks dies in it, it is asked for again, and begins as it did the first time.
        """
        ...

    def publish(self) -> Any:
        """Weights as the engine's `load_weights` takes them: a copy that later steps do not change."""
        ...

    def save(self, folder: Path) -> None:
        """Write model, optimizer, schedule and RNG into `folder`, which exists and is empty."""
        ...

    def load(self, folder: Path) -> None:
        """The inverse of `save`. RunDamagedError names the file that cannot be read."""
        ...
