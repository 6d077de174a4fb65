"""The trainer on one device: verified groups in, the next version out.

`version.number` counts train steps; the schedule, the mini-batches and what a checkpoint stores all follow from it.
Weights are float32 masters; `dtype` is what is served: the published tensors have it, and the digest of a version is
theirs. Bit for bit: a trainer that loads a checkpoint and one that never stopped do
the same from there on.
"""

import copy
from functools import partial
from pathlib import Path
from typing import Any

import torch

from springtide.core.group import Group
from springtide.core.version import PolicyVersion
from springtide.policy.attention import can_share_prefixes, prepare_for_training
from springtide.policy.device import compute_dtype, random_state, restore_random_state
from springtide.policy.digest import digest_tensors, named_weights
from springtide.ports.trainer import StepReport
from springtide.training import state
from springtide.training.batch import batch_from_groups
from springtide.training.books import StepBooks
from springtide.training.config import TrainingConfig
from springtide.training.logprob import Transform, token_logprobs
from springtide.training.loss import LossOptions, policy_loss
from springtide.training.metrics import zero_advantage_tokens
from springtide.training.optimizer import GradientReport, apply_gradients, learning_rate, make_optimizer
from springtide.training.reference import ReferencePolicy
from springtide.training.stages import Stages
from springtide.training.update import UpdatePlan, assign_advantages, confine_mask, run_update


class TorchTrainer:
    """Implements ports.trainer.Trainer.

    `model` as handed over is version 0 and, with a KL term, the reference; it is trained in place. `transform` must be
    that of sampling and `dtype` that of the engine's weights. `kept_kv`: the engine samples on over keys and values of
    earlier versions. `stages` is public: wrap one to check, capture or disturb it.
    """

    def __init__(
        self,
        model: Any,
        *,
        config: TrainingConfig,
        total_steps: int,
        transform: Transform | None = None,
        dtype: torch.dtype = torch.float32,
        kept_kv: bool = False,
    ) -> None:
        self.model = model
        self.config = config
        self._total_steps = total_steps
        self._dtype = dtype
        self._kept_kv = kept_kv
        self._device: torch.device = next(model.parameters()).device
        self._optimizer = make_optimizer(model, config.optimizer)
        self._compute = dtype if config.compute == "auto" else compute_dtype(config.compute, self._device)
        prepare_for_training(model)
        self._share_prefixes = can_share_prefixes(model)
        self._books = StepBooks(self._device)
        self._reference = self._make_reference()
        self._number = 0
        self._version = self._measure()
        self.stages = self._make_stages(transform or Transform())

    @property
    def version(self) -> PolicyVersion:
        return self._version

    @property
    def exact(self) -> bool:
        """Whether a step trained again gives the same weights, bit for bit.

        On accelerators it may not: the gradient of fused attention is summed in no fixed order, also under
        `use_deterministic_algorithms(True, warn_only=True)`, and without `warn_only` operators of the engine refuse.
        """
        return self._device.type == "cpu"

    def prepare(self, *, step: int, group: Group, ready: float, idle: bool) -> None:
        """The reference's log-probs, where the trainer would only wait. What is complete while it trains has to wait
        for the next such moment, or is done in its step."""
        if self._reference is None:
            return
        self._reference.expect(group)
        if idle:
            self._reference.catch_up(self.stages)

    def step(self, *, step: int, groups: tuple[Group, ...]) -> StepReport:
        """Apply train step `step`, which must be the next one.

        A mini-batch whose gradient is not finite is skipped and counted, one without any gradient leaves weights and
        optimizer as they are; the version number grows by one in any case. `trained_tokens` are all sampled, unmasked
        tokens of valid members, less those of skipped mini-batches; `zero_advantage_tokens` are of groups that carried
        no signal.
        """
        assert step == self._number + 1, f"step {step} does not follow version {self._number}"
        self._books.begin()
        if self._reference is not None:
            self._reference.compute(groups, self.stages)
        batch, tally = run_update(
            groups, stages=self.stages, model=self.model, reference=self._reference, plan=self._plan()
        )
        if self._reference is not None:
            self._reference.forget(groups)
        metrics = tally.metrics(batch, learning_rate=self._rate())
        self._number = step
        before = self._version.digest
        with self._books.updates(0):
            self._version = self._measure()
        metrics["train/weights_changed"] = float(self._version.digest != before)
        return StepReport(
            step=step,
            version=self._version,
            trained_tokens=batch.trained_tokens - tally.skipped_tokens,
            zero_advantage_tokens=zero_advantage_tokens(batch),
            metrics=metrics,
            work=self._books.end(groups),
        )

    def publish(self) -> dict[str, torch.Tensor]:
        """The policy's tensors by name, tied ones once, floating ones in `dtype`; their digest is `version.digest`."""
        return dict(self._served(copy=True))

    def save(self, folder: Path) -> None:
        state.write_tensors(folder / state.MODEL, state.model_tensors(self.model))
        state.write_tensors(folder / state.OPTIMIZER, state.optimizer_tensors(self.model, self._optimizer))
        state.write_tensors(folder / state.RANDOM, random_state(self._device))
        if self._reference is not None:
            state.write_tensors(folder / state.REFERENCE, state.model_tensors(self._reference.model))
        state.write_index(folder, {"step": self._number, "digest": self._version.digest})

    def load(self, folder: Path) -> None:
        self._number = state.load_policy(self.model, folder)
        state.set_optimizer_tensors(self.model, self._optimizer, state.read_tensors(folder / state.OPTIMIZER))
        restore_random_state(self._device, state.read_tensors(folder / state.RANDOM))
        if self._reference is not None:
            # A run that branches off with a KL term of its own starts from the weights it branches at.
            reference = folder / state.REFERENCE
            source = reference if reference.exists() else folder / state.MODEL
            state.set_model_tensors(self._reference.model, state.read_tensors(source), source=source)
            self._reference.forget_all()
        self._version = self._measure()

    def _make_reference(self) -> ReferencePolicy | None:
        if self.config.algorithm.kl_coefficient == 0.0:
            return None
        model, budget = _frozen_copy(self.model), self.config.tokens_per_micro_batch
        return ReferencePolicy(model, budget=budget, share=self._share_prefixes, books=self._books)

    def _make_stages(self, transform: Transform) -> Stages:
        algorithm = self.config.algorithm
        options = LossOptions(
            clip_low=algorithm.clip_low,
            clip_high=algorithm.clip_high,
            importance_cap=algorithm.importance_cap,
            kl_coefficient=algorithm.kl_coefficient,
        )
        return Stages(
            tokens=batch_from_groups,
            mask=confine_mask,
            advantage=partial(assign_advantages, normalize_std=algorithm.normalize_std),
            logprob=partial(token_logprobs, transform=transform, dtype=self._compute),
            loss=partial(policy_loss, options=options),
            step=self._apply,
        )

    def _plan(self) -> UpdatePlan:
        algorithm = self.config.algorithm
        return UpdatePlan(
            mini_batches=algorithm.mini_batches,
            tokens_per_micro_batch=self.config.tokens_per_micro_batch,
            version=self._number,
            needs_reference=self._reference is not None,
            stored_proximal=self._compute is self._dtype is torch.float32 and not self._kept_kv,
            coupled=algorithm.importance_cap is None,
            share_prefixes=self._share_prefixes,
        )

    def _rate(self) -> float:
        return learning_rate(self.config.optimizer, step=self._number + 1, total_steps=self._total_steps)

    def _apply(self) -> GradientReport:
        with self._books.updates(1):
            return apply_gradients(
                self._optimizer, rate=self._rate(), max_grad_norm=self.config.optimizer.max_grad_norm
            )

    def _served(self, *, copy: bool = False) -> list[tuple[str, torch.Tensor]]:
        """`copy`: none of the tensors is the model's own."""
        return [
            (name, tensor.to(self._dtype if tensor.is_floating_point() else tensor.dtype, copy=copy))
            for name, tensor in named_weights(self.model)
        ]

    def _measure(self) -> PolicyVersion:
        return PolicyVersion(self._number, digest_tensors(self._served()))


def _frozen_copy(model: Any) -> Any:
    reference = copy.deepcopy(model)
    reference.requires_grad_(False)
    return reference
