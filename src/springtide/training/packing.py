"""Rows to padded micro-batches under a token budget.

Rows of similar length share a micro-batch, so little is padded; the composition depends on lengths and order alone.
Everything per token is flattened to the trained positions, the only ones whose log-probs are read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from springtide.training.batch import Row

LENGTH_MULTIPLE = 16
"""Padded lengths are multiples of this: few distinct shapes, aligned kernels."""


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """`tokens` is [rows, length], padded with 0 on the right. The others are [n], one entry per trained token:
    `positions` of the hidden state that predicts it, in the flattened tokens; the token itself (`targets`); its
    behaviour log-prob, version and advantage. `rows` are indices into the sequence that was packed."""

    rows: tuple[int, ...]
    tokens: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    behaviour: torch.Tensor
    versions: torch.Tensor
    advantages: torch.Tensor


def plan_micro_batches(lengths: Sequence[int], *, budget: int) -> list[tuple[int, ...]]:
    """Indices of `lengths`, longest first, cut so that rows times padded length stays within `budget` tokens.

    A row longer than the budget has a micro-batch of its own; rows of length 0 are left out.
    """
    order = sorted((i for i, length in enumerate(lengths) if length > 0), key=lambda i: (-lengths[i], i))
    batches: list[tuple[int, ...]] = []
    current: list[int] = []
    for index in order:
        if current and (len(current) + 1) * _padded(lengths[current[0]]) > budget:
            batches.append(tuple(current))
            current = []
        current.append(index)
    return [*batches, tuple(current)] if current else batches


def pack(rows: Sequence[Row], *, budget: int, device: torch.device) -> list[MicroBatch]:
    """Micro-batches that hold every trained token of `rows` once."""
    plan = plan_micro_batches([row.length for row in rows], budget=budget)
    return [_micro_batch(rows, indices, device) for indices in plan]


def _micro_batch(rows: Sequence[Row], indices: tuple[int, ...], device: torch.device) -> MicroBatch:
    width = _padded(rows[indices[0]].length)
    tokens = np.zeros((len(indices), width), dtype=np.int64)
    positions, targets, behaviour, versions, advantages = [], [], [], [], []
    for place, index in enumerate(indices):
        row = rows[index]
        assert not row.mask[0], "the first token of a sequence has nothing to be predicted from"
        tokens[place, : row.length] = row.tokens[: row.length]
        trained = np.flatnonzero(row.mask)
        positions.append(place * width + trained - 1)
        targets.append(row.tokens[trained])
        behaviour.append(row.behaviour[trained])
        versions.append(row.versions[trained])
        advantages.append(np.full(trained.size, row.advantage, dtype=np.float32))

    def tensor(parts: list[npt.NDArray[Any]]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(device)

    return MicroBatch(
        rows=indices,
        tokens=torch.from_numpy(tokens).to(device),
        positions=tensor(positions),
        targets=tensor(targets),
        behaviour=tensor(behaviour),
        versions=tensor(versions),
        advantages=tensor(advantages),
    )


def _padded(length: int) -> int:
    return -(-length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
