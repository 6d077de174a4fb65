"""The policy loss per token: decoupled, clipped, importance-weighted.

With pi the weights being trained, pi_prox the weights at the start of the train step, pi_b the behaviour policy that
sampled the token, and A its advantage:

    ratio     = pi / pi_prox
    surrogate = min(ratio A, clip(ratio, 1 - low, 1 + high) A)      PPO, arXiv 1707.06347; high > low: DAPO, 2503.14476
    weight    = min(pi_prox / pi_b, cap), no gradient               decoupled PPO, arXiv 2110.00641, as truncated
                                                                    importance sampling
    loss      = -weight surrogate + c k3                            GRPO, arXiv 2402.03300
    k3        = pi_ref / pi - log(pi_ref / pi) - 1                  Schulman, "Approximating KL divergence", 2020

Invariant: losses are summed over tokens here and divided once by the trained tokens of the whole optimizer update, so
neither loss nor gradient depends on how tokens are cut into micro-batches.
"""

from dataclasses import dataclass

import torch

LOG_RATIO_BOUND = 20.0
"""exp() of more is of no use and may overflow; the clip has long since taken the gradient."""


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """All [n] float32, one entry per trained token; only `current` carries gradient. `inside` False silences a token
    that one of the policies cannot produce. `reference` is None without a KL term."""

    current: torch.Tensor
    proximal: torch.Tensor
    behaviour: torch.Tensor
    advantages: torch.Tensor
    inside: torch.Tensor
    reference: torch.Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class LossTerms:
    """`total` is the differentiable sum over tokens. `sums` and `maxima` are scalars for metrics, without gradient."""

    total: torch.Tensor
    sums: dict[str, torch.Tensor]
    maxima: dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class LossOptions:
    """`importance_cap` None: no importance weight."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    importance_cap: float | None = 2.0
    kl_coefficient: float = 0.0


def policy_loss(inputs: LossInputs, *, options: LossOptions) -> LossTerms:
    """The sum of the loss over the given tokens."""
    ratio = _ratio(inputs.current, inputs.proximal)
    clipped = ratio.clamp(1.0 - options.clip_low, 1.0 + options.clip_high)
    surrogate = torch.minimum(ratio * inputs.advantages, clipped * inputs.advantages)
    drift = _ratio(inputs.proximal, inputs.behaviour)
    weight = torch.ones_like(drift) if options.importance_cap is None else drift.clamp_max(options.importance_cap)
    loss = -weight * surrogate
    divergence = torch.zeros_like(loss) if inputs.reference is None else k3(inputs.current, inputs.reference)
    if options.kl_coefficient > 0.0:
        loss = loss + options.kl_coefficient * divergence
    total = _sum(loss, inputs)
    with torch.no_grad():
        passive = (clipped * inputs.advantages < ratio * inputs.advantages) & inputs.inside
        capped = torch.zeros_like(passive) if options.importance_cap is None else drift >= options.importance_cap
        sums = {
            "loss": total.detach(),
            "tokens_inside": inputs.inside.sum(),
            "clipped": passive.sum(),
            "capped": (capped & inputs.inside).sum(),
            "reference_kl": _sum(divergence, inputs),
            "behaviour_kl": _sum(k3(inputs.behaviour, inputs.current), inputs),
            "ratio": _sum(ratio, inputs),
            "drift": _sum(drift, inputs),
            "drift_squared": _sum(drift.square(), inputs),
        }
        maxima = {
            "ratio": torch.where(inputs.inside, ratio, 0.0).max(),
            "drift": torch.where(inputs.inside, drift, 0.0).max(),
        }
    return LossTerms(total=total, sums=sums, maxima=maxima)


def k3(policy: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """An unbiased, non-negative estimate of KL(policy || other) per token sampled from `policy`, from log-probs."""
    difference = (other - policy).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    return difference.exp() - difference - 1.0


def _ratio(numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
    return (numerator - denominator).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()


def _sum(values: torch.Tensor, inputs: LossInputs) -> torch.Tensor:
    return torch.where(inputs.inside, values, 0.0).sum()
