"""AdamW, its schedule, and the one place where weights change.

Invariant: a gradient that is not finite is never applied; weights and optimizer state stay as they were, and the
report says so.
"""

import math
from dataclasses import dataclass

import torch

from springtide.training.config import OptimizerConfig


@dataclass(frozen=True, kw_only=True)
class GradientReport:
    """`norm` is the global L2 norm before clipping; `applied` is False when it was not finite."""

    norm: float
    applied: bool


def make_optimizer(model: torch.nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over the trainable parameters; vectors (norms, biases) do not decay."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.eps,
        fused=True,
    )


def learning_rate(config: OptimizerConfig, *, step: int, total_steps: int) -> float:
    """The rate of step `step` (1-based) of `total_steps`: linear warm-up to the peak, then the schedule down to
    `final_fraction` of it at the last step."""
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    span = max(1, total_steps - config.warmup_steps)
    progress = min(1.0, (step - config.warmup_steps) / span)
    shape = 1.0 - progress if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return config.learning_rate * (config.final_fraction + (1.0 - config.final_fraction) * shape)


def apply_gradients(optimizer: torch.optim.Optimizer, *, rate: float, max_grad_norm: float) -> GradientReport:
    """Clip, step at learning rate `rate`, and clear the gradients."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm))
    applied = math.isfinite(norm)
    if applied:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return GradientReport(norm=norm, applied=applied)
