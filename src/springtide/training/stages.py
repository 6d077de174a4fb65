"""The stages that make up a train step.

    tokens     groups -> batch          rows out of trajectories, invalid members left out
    mask       batch -> batch           which tokens are trained on
    advantage  batch -> batch           one number per row
    logprob    model, rows -> log-probs differentiable; also for the proximal and reference policies, without gradient
    loss       log-probs -> loss        summed over tokens
    step       gradient -> weights      clip, schedule, AdamW

Every stage but the last is pure, and each can be wrapped by name: a check, a capture or a known fault goes around one
stage without touching the others.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from springtide.core.group import Group
from springtide.training.batch import Batch
from springtide.training.logprob import Logprobs
from springtide.training.loss import LossInputs, LossTerms
from springtide.training.optimizer import GradientReport
from springtide.training.packing import MicroBatch


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The functions that make up an update, by name."""

    tokens: Callable[[tuple[Group, ...]], Batch]
    mask: Callable[[Batch], Batch]
    advantage: Callable[[Batch], Batch]
    logprob: Callable[[Any, MicroBatch], Logprobs]
    loss: Callable[[LossInputs], LossTerms]
    step: Callable[[], GradientReport]

    def wrap(self, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> "Stages":
        """The same stages with `wrapper(stage)` in the place of stage `name`."""
        known = [field.name for field in fields(self)]
        if name not in known:
            raise ValueError(f"an update has no stage '{name}'; the stages are {', '.join(known)}.")
        return replace(self, **{name: wrapper(getattr(self, name))})
