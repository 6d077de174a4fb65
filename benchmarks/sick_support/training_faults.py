"""Faults of the update: each goes around one stage of it, or two."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field

from sick_support.fault import Fault
from springtide.config import Recipe
from springtide.launch.customize import Customize
from springtide.policy.logits import selected_logits
from springtide.training.batch import Batch, Row
from springtide.training.logprob import Logprobs, Transform
from springtide.training.loss import LossInputs, LossTerms
from springtide.training.packing import MicroBatch
from springtide.training.trainer import TorchTrainer


class TrainingFault(Fault):
    def customize(self, recipe: Recipe) -> Customize:
        return Customize(trainer=partial(self.wrap, recipe=recipe))

    def wrap(self, trainer: TorchTrainer, recipe: Recipe) -> None:
        raise NotImplementedError

    def now(self, trainer: TorchTrainer) -> bool:
        """Whether the step that `trainer` works on is one of the sick ones."""
        return self.covers(trainer.version.number + 1)


class WrongTemperature(TrainingFault):
    """The trainer computes log-probs at this temperature, whatever it is that sampling used."""

    type: Literal["wrong_temperature"] = "wrong_temperature"
    temperature: float = Field(2.0, gt=0)

    def wrap(self, trainer: TorchTrainer, recipe: Recipe) -> None:
        transform = Transform(temperature=self.temperature, top_k=recipe.rollout.top_k, top_p=recipe.rollout.top_p)

        def wrapper(stage: Callable[..., Logprobs]) -> Callable[..., Logprobs]:
            wrong = partial(stage, transform=transform)
            return lambda model, micro: (wrong if self.now(trainer) else stage)(model, micro)

        trainer.stages = trainer.stages.wrap("logprob", wrapper)


class RowFault(TrainingFault):
    """Changes a `share` of the rows that `stage` makes."""

    share: float = Field(1.0, gt=0, le=1)

    def wrap(self, trainer: TorchTrainer, recipe: Recipe) -> None:
        def wrapper(stage: Callable[[Any], Batch]) -> Callable[[Any], Batch]:
            def wrapped(value: Any) -> Batch:
                batch = stage(value)
                if not self.now(trainer):
                    return batch
                luck = random.Random(trainer.version.number)
                rows = tuple(self.changed(row) if luck.random() < self.share else row for row in batch.rows)
                return replace(batch, rows=rows)

            return wrapped

        trainer.stages = trainer.stages.wrap(self.stage, wrapper)

    @property
    def stage(self) -> str:
        raise NotImplementedError

    def changed(self, row: Row) -> Row:
        raise NotImplementedError


class ShiftedLogprobs(RowFault):
    """The stored log-probs are one token late."""

    type: Literal["shifted_logprobs"] = "shifted_logprobs"

    @property
    def stage(self) -> str:
        return "tokens"

    def changed(self, row: Row) -> Row:
        shifted = row.behaviour.copy()
        shifted[row.mask] = np.roll(row.behaviour[row.mask], 1)
        return replace(row, behaviour=shifted)


class UnmaskedReplies(RowFault):
    """What the environment said is trained on as if the agent had said it."""

    type: Literal["unmasked_replies"] = "unmasked_replies"

    @property
    def stage(self) -> str:
        return "mask"

    def changed(self, row: Row) -> Row:
        mask = np.ones_like(row.mask)
        mask[0] = False
        return replace(row, mask=mask)


class EntropyBonus(TrainingFault):
    """`coefficient` times the entropy of the sampling distribution is added to what is maximised."""

    type: Literal["entropy_bonus"] = "entropy_bonus"
    coefficient: float = Field(0.1, gt=0)

    def wrap(self, trainer: TorchTrainer, recipe: Recipe) -> None:
        temperature = recipe.rollout.temperature
        entropies: list[torch.Tensor] = []

        def logprob(stage: Callable[..., Logprobs]) -> Callable[..., Logprobs]:
            def wrapped(model: Any, micro: MicroBatch) -> Logprobs:
                if torch.is_grad_enabled():
                    logits = selected_logits(model, micro.tokens, micro.positions, micro.shared).float()
                    logprobs = (logits / temperature).log_softmax(dim=-1)
                    entropies.append(-(logprobs.exp() * logprobs).sum())
                return stage(model, micro)

            return wrapped

        def loss(stage: Callable[[LossInputs], LossTerms]) -> Callable[[LossInputs], LossTerms]:
            def wrapped(inputs: LossInputs) -> LossTerms:
                terms = stage(inputs)
                weight = self.coefficient if self.now(trainer) else 0.0
                return replace(terms, total=terms.total - weight * entropies.pop())

            return wrapped

        trainer.stages = trainer.stages.wrap("logprob", logprob).wrap("loss", loss)


class Frozen(TrainingFault):
    """So large a `share` of the parameters, tensors from the largest down, never hears of its gradient."""

    type: Literal["frozen"] = "frozen"
    share: float = Field(1.0, gt=0, le=1)

    def wrap(self, trainer: TorchTrainer, recipe: Recipe) -> None:
        ordered = sorted(trainer.model.parameters(), key=lambda parameter: -parameter.numel())
        total = sum(parameter.numel() for parameter in ordered)
        frozen, count = [], 0
        for parameter in ordered:
            if count < self.share * total:
                frozen.append(parameter)
                count += parameter.numel()

        def wrapper(stage: Callable[[], Any]) -> Callable[[], Any]:
            def wrapped() -> Any:
                if self.now(trainer):
                    for parameter in frozen:
                        parameter.grad = None
                return stage()

            return wrapped

        trainer.stages = trainer.stages.wrap("step", wrapper)
