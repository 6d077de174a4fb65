"""Work on logits a few rows at a time.

What follows the output head needs float32, and several copies at once: of all rows of a micro-batch together, with the
vocabulary of a real model, they would outgrow the model. Each chunk's copies are gone when its numbers are there, and
are made again when the gradient comes by.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch.utils.checkpoint import checkpoint

CHUNK_BYTES = 1 << 28
"""Of one float32 copy of a chunk's logits: small beside a model with a large vocabulary, yet much work per call."""

Work = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]


def in_chunks(work: Work, logits: torch.Tensor, targets: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
    """What `work` makes of pieces of `logits` [n, vocabulary] and `targets` [n], in order: of all at once where that is
    small enough. `work` draws no random numbers.
    """
    rows = max(1, CHUNK_BYTES // (torch.float32.itemsize * logits.shape[1]))
    if len(logits) <= rows:
        return [work(logits, targets)]
    return [
        cast(
            "tuple[torch.Tensor, ...]",
            checkpoint(work, piece, wanted, use_reentrant=False, preserve_rng_state=False),
        )
        for piece, wanted in zip(torch.split(logits, rows), torch.split(targets, rows), strict=True)
    ]
