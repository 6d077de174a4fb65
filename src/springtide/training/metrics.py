"""What a train step reports, added up on the device and read once at its end.

Means over tokens are over the tokens that went through the model: those of rows with a gradient (a row of advantage 0
has none, unless there is a KL term). `train/behaviour_nll` is over all trained tokens.
"""

import math

import numpy as np
import torch

from springtide.training.batch import Batch
from springtide.training.logprob import Logprobs
from springtide.training.loss import LOG_RATIO_BOUND, LossTerms
from springtide.training.optimizer import GradientReport
from springtide.training.packing import MicroBatch


class Tally:
    """Sums over tokens and reports of optimizer updates."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sums: dict[str, torch.Tensor] = {}
        self._maxima: dict[str, torch.Tensor] = {}
        self._mismatch: dict[str, torch.Tensor] = {}
        self._steps: list[GradientReport] = []
        self.skipped_tokens = 0
        self._tokens = 0
        self._padded = 0

    def add_tokens(self, terms: LossTerms, current: Logprobs, micro: MicroBatch, *, share: float) -> None:
        """Account for one micro-batch; `share` is the weight of each of its tokens in the step's loss."""
        self._tokens += micro.targets.numel()
        self._padded += micro.tokens.numel()
        own = {"objective": terms.sums["loss"] * share, "entropy": current.entropy.sum()}
        for name, value in (terms.sums | own).items():
            self._sums[name] = self._sums.get(name, torch.zeros((), device=self._device)) + value
        for name, value in terms.maxima.items():
            known = self._maxima.get(name)
            self._maxima[name] = value if known is None else torch.maximum(known, value)

    def add_mismatch(self, current: Logprobs, micro: MicroBatch) -> None:
        """Account for how far the trainer's log-probs are from the stored ones of the same tokens. To be called before
        the step changes any weight: what it changes is no mismatch."""
        difference = (current.values.detach() - micro.behaviour)[current.inside].abs().clamp_max(LOG_RATIO_BOUND)
        if not difference.numel():
            return
        behaviour = micro.behaviour[current.inside].exp()
        gap = (current.values.detach()[current.inside].exp() - behaviour).abs()
        known = self._mismatch
        for name, value in {
            "tokens": torch.full((), float(difference.numel()), device=self._device),
            "difference": difference.sum(),
            "probability": gap.sum(),
            "factor": difference.exp().sum(),
        }.items():
            known[name] = known.get(name, torch.zeros((), device=self._device)) + value
        known["max"] = torch.maximum(known.get("max", difference.max()), difference.max())

    def add_step(self, report: GradientReport, *, tokens: int) -> None:
        """Account for one optimizer update over `tokens` trained tokens."""
        self._steps.append(report)
        self.skipped_tokens += 0 if report.applied else tokens

    def metrics(self, batch: Batch, *, learning_rate: float) -> dict[str, float]:
        """Canonical names to numbers; a metric that this step has no data for is left out."""
        skipped = sum(not report.applied for report in self._steps)
        found = {
            "train/learning_rate": learning_rate,
            "train/updates": float(len(self._steps) - skipped),
            "train/skipped_updates": float(skipped),
        }
        norms = [report.norm for report in self._steps if report.applied]
        if norms:
            found["train/grad_norm"] = math.fsum(norms) / len(norms)
        return found | self._token_metrics() | self._mismatch_metrics() | batch_metrics(batch)

    def _token_metrics(self) -> dict[str, float]:
        if self._tokens == 0:
            return {"train/loss": 0.0}
        sums = _read(self._sums)
        maxima = _read(self._maxima)
        n = self._tokens
        squared = sums["drift_squared"]
        return {
            "train/loss": sums["objective"],
            "train/entropy": sums["entropy"] / n,
            "train/clip_fraction": sums["clipped"] / n,
            "train/ratio_mean": sums["ratio"] / n,
            "train/ratio_max": maxima["ratio"],
            "train/importance_mean": sums["drift"] / n,
            "train/importance_max": maxima["drift"],
            "train/importance_capped": sums["capped"] / n,
            "train/ess": sums["drift"] ** 2 / (n * squared) if squared > 0.0 else 0.0,
            "train/behaviour_kl": sums["behaviour_kl"] / n,
            "train/reference_kl": sums["reference_kl"] / n,
            "train/outside_support": 1.0 - sums["tokens_inside"] / n,
            "train/computed_tokens": float(n),
            "train/padded_tokens": float(self._padded),
        }

    def _mismatch_metrics(self) -> dict[str, float]:
        if not self._mismatch:
            return {}
        sums = _read(self._mismatch)
        return {
            "mismatch/logp_difference": sums["difference"] / sums["tokens"],
            "mismatch/logp_difference_max": sums["max"],
            "mismatch/probability_difference": sums["probability"] / sums["tokens"],
            "mismatch/error_factor": sums["factor"] / sums["tokens"],
        }


def batch_metrics(batch: Batch) -> dict[str, float]:
    """What the batch says before any model reads it."""
    members = [reward for rewards in batch.rewards for reward in rewards]
    valid = [reward for reward in members if reward is not None]
    flat = [len({reward for reward in rewards if reward is not None}) < 2 for rewards in batch.rewards]
    found = {
        "train/tokens": float(batch.trained_tokens),
        "train/zero_advantage_tokens": float(zero_advantage_tokens(batch)),
        "train/zero_advantage_groups": sum(flat) / max(1, len(flat)),
        "train/invalid_members": float(len(members) - len(valid)),
    }
    if valid:
        found["reward/mean"] = math.fsum(valid) / len(valid)
    trained = [row.behaviour[row.mask] for row in batch.rows if row.trained_tokens]
    if trained:
        found["train/behaviour_nll"] = -float(np.concatenate(trained).mean(dtype=np.float64))
        weights = [row.trained_tokens for row in batch.rows if row.trained_tokens]
        advantages = [row.advantage for row in batch.rows if row.trained_tokens]
        found["advantage/mean"] = float(np.average(advantages, weights=weights))
        found["advantage/min"], found["advantage/max"] = min(advantages), max(advantages)
    return found


def zero_advantage_tokens(batch: Batch) -> int:
    """Trained tokens of groups in which no row has an advantage other than 0."""
    moving = {row.group for row in batch.rows if row.advantage != 0.0}
    return sum(row.trained_tokens for row in batch.rows if row.group not in moving)


def _read(scalars: dict[str, torch.Tensor]) -> dict[str, float]:
    """All of them in one transfer."""
    values = torch.stack([value.float() for value in scalars.values()]).tolist()
    return dict(zip(scalars, values, strict=True))
