"""Log-probs of the trained tokens, under the same distribution that sampling draws from.

The stored behaviour log-probs are of the distribution after temperature and truncation, so the same transform is
applied here; a ratio of the two is then a ratio of what actually happened.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from springtide.policy.device import autocast
from springtide.policy.logits import selected_logits
from springtide.policy.transform import transform_logits
from springtide.training.chunks import in_chunks
from springtide.training.packing import MicroBatch


@dataclass(frozen=True, kw_only=True)
class Transform:
    """How logits become the sampling distribution; `top_k` 0 and `top_p` 1 truncate nothing."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Logprobs:
    """`values` [n], differentiable; `entropy` [n] of the whole distribution, for reading only.

    A token that truncation excludes under the present weights has no probability and no gradient: `inside` [n] is
    False there, and its value is 0.
    """

    values: torch.Tensor
    entropy: torch.Tensor
    inside: torch.Tensor


def token_logprobs(model: Any, micro: MicroBatch, *, transform: Transform, dtype: torch.dtype) -> Logprobs:
    """Log-probs of `micro.targets` under `model`, computed in `dtype` and summed up in float32."""
    with autocast(micro.tokens.device, dtype):
        logits = selected_logits(model, micro.tokens, micro.positions, micro.shared)
    pieces = in_chunks(partial(_of_targets, transform=transform), logits, micro.targets)
    values, entropy, inside = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    return Logprobs(values=values, entropy=entropy, inside=inside)


def _of_targets(
    logits: torch.Tensor, targets: torch.Tensor, *, transform: Transform
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The fields of `Logprobs` for `logits` [n, vocabulary] and `targets` [n]."""
    logprobs_N_V = transform_logits(logits.float(), transform.temperature, transform.top_k, transform.top_p)
    chosen = logprobs_N_V.gather(1, targets.unsqueeze(1)).squeeze(1)
    inside = torch.isfinite(chosen.detach())
    values = torch.where(inside, chosen, 0.0)
    with torch.no_grad():
        probabilities = logprobs_N_V.exp()
        entropy = -(probabilities * logprobs_N_V.clamp_min(torch.finfo(torch.float32).min)).sum(dim=1)
    return values, entropy, inside
