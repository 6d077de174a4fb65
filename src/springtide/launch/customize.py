"""What may be put around the parts of a run before they are wired: a check, a capture, a known fault.

Only the composition reads it, and a run that is given none has its parts as they are made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from springtide.ports.engine import Engine
from springtide.ports.environment import EnvironmentSource
from springtide.ports.sampler import Sampler
from springtide.training.trainer import TorchTrainer

T = TypeVar("T")


def unchanged(part: T) -> T:
    return part


def left_alone(_: TorchTrainer) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Customize:
    """`source`, `engine` and `sampler` give what stands in for the part; `trainer` changes the trainer in place, before
    its first step: it wraps stages of the update. Evaluation goes through the same engine, sampler and environments as
    training does."""

    source: Callable[[EnvironmentSource], EnvironmentSource] = unchanged
    trainer: Callable[[TorchTrainer], None] = left_alone
    engine: Callable[[Engine], Engine] = unchanged
    sampler: Callable[[Sampler], Sampler] = unchanged
