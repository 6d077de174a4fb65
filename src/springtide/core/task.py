"""What the agent is asked. A task is data, pure in (source, split, index); the environment knows how to play it."""

from enum import StrEnum
from typing import Any

import msgspec


class Split(StrEnum):
    """Which tasks a run may learn from."""

    TRAIN = "train"
    """Seeds the policy is trained on."""
    HELD_OUT = "held_out"
    """Seeds that no warm start and no training step ever sees."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One problem instance. `seed` is all the randomness that its generator may use."""

    id: str
    split: Split
    index: int
    seed: int
    data: dict[str, Any] = {}
