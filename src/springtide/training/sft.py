"""Supervised training on demonstrations: cross entropy on the masked tokens, mean over the tokens of each batch.

Deterministic: the order of samples, their micro-batches and every number that follows depend on the arguments alone.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from springtide.core.errors import UsageError
from springtide.policy.attention import prepare_for_training
from springtide.policy.device import autocast, compute_dtype, fast_dtype
from springtide.policy.logits import selected_logits
from springtide.training.batch import Row
from springtide.training.chunks import in_chunks
from springtide.training.config import WarmStartConfig
from springtide.training.optimizer import apply_gradients, learning_rate, make_optimizer
from springtide.training.packing import pack


def supervised(
    model: Any,
    rows: Sequence[Row],
    *,
    config: WarmStartConfig,
    seed: int,
    tokens_per_micro_batch: int,
    on_step: Callable[[int, dict[str, float]], None],
) -> dict[str, float]:
    """Train `model` in place for `config.steps` steps and return the last step's metrics.

    Each step takes `config.batch_size` rows; every row is seen once before any is seen again, in an order drawn from
    `seed`. `on_step` gets the step (1-based) and `warm_start/loss`, `warm_start/accuracy` (greedy, on masked tokens),
    `warm_start/tokens`, `warm_start/learning_rate`, `warm_start/skipped_updates` so far and, unless this step was
    skipped, `warm_start/grad_norm`. ValueError without a row that has a masked token; UsageError if every step was
    skipped, as its gradient was not finite.
    """
    rows = [row for row in rows if row.trained_tokens]
    if not rows:
        raise ValueError("supervised training needs at least one row with tokens to imitate.")
    device = next(model.parameters()).device
    dtype = fast_dtype(device) if config.compute == "auto" else compute_dtype(config.compute, device)
    prepare_for_training(model)
    optimizer = make_optimizer(model, config.optimizer)
    metrics: dict[str, float] = {}
    skipped = 0
    order = _order(len(rows), config.batch_size, np.random.default_rng(seed))
    for step in range(1, config.steps + 1):
        batch = [rows[index] for index in next(order)]
        loss, accuracy, tokens = _accumulate(model, batch, budget=tokens_per_micro_batch, dtype=dtype)
        rate = learning_rate(config.optimizer, step=step, total_steps=config.steps)
        report = apply_gradients(optimizer, rate=rate, max_grad_norm=config.optimizer.max_grad_norm)
        skipped += not report.applied
        metrics = {
            "warm_start/loss": loss,
            "warm_start/accuracy": accuracy,
            "warm_start/tokens": float(tokens),
            "warm_start/learning_rate": rate,
            "warm_start/skipped_updates": float(skipped),
        }
        if report.applied:
            metrics["warm_start/grad_norm"] = report.norm
        on_step(step, metrics)
    if 0 < skipped == config.steps:
        raise UsageError(
            f"warm_start.steps {skipped}: no step had a finite gradient, so that nothing was learned; set "
            "warm_start.compute to float32, or use a model whose weights are finite."
        )
    return metrics


def _accumulate(model: Any, batch: list[Row], *, budget: int, dtype: torch.dtype) -> tuple[float, float, int]:
    """Backward over `batch`: loss and accuracy per trained token, and the number of these tokens."""
    device = next(model.parameters()).device
    count = sum(row.trained_tokens for row in batch)
    loss = torch.zeros((), device=device)
    hits = torch.zeros((), device=device)
    for micro in pack(batch, budget=budget, device=device):
        with autocast(device, dtype):
            logits = selected_logits(model, micro.tokens, micro.positions)
        pieces = in_chunks(_cross_entropy, logits, micro.targets)
        total = pieces[0][0] if len(pieces) == 1 else torch.stack([piece for (piece,) in pieces]).sum()
        (total / count).backward()  # type: ignore[no-untyped-call]
        loss += total.detach()
        hits += (logits.detach().argmax(dim=1) == micro.targets).sum()
    return float(loss) / count, float(hits) / count, count


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor]:
    return (torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum"),)


def _order(size: int, batch: int, generator: np.random.Generator) -> Iterator[list[int]]:
    """Batches of sample indices without end: one permutation after another, cut into pieces of `batch`."""
    waiting: list[int] = []
    while True:
        while len(waiting) < batch:
            waiting += generator.permutation(size).tolist()
        yield waiting[:batch]
        waiting = waiting[batch:]
