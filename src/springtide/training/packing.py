"""Rows to padded micro-batches under a token budget.

Rows of similar length share a micro-batch, so little is padded; the composition depends on lengths and order alone.
Everything per token is flattened to the trained positions, the only ones whose log-probs are read. Where the model
can share prefixes, the rows of a group are packed with their common beginning once, and without any padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from springtide.policy.attention import LONGEST
from springtide.policy.prefix import SharedPrefixes, lay_out
from springtide.training.batch import Row

LENGTH_MULTIPLE = 16
"""Padded lengths are multiples of this: few distinct shapes, aligned kernels."""


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """`tokens` is [rows, length], padded with 0 on the right, or [1, tokens] as `shared` lays them out.

    The others are [n], one entry per trained token: `positions` of the hidden state that predicts it, in the flattened
    tokens; the token itself (`targets`); its behaviour log-prob, version and advantage. `rows` are indices into the
    sequence that was packed."""

    rows: tuple[int, ...]
    tokens: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    behaviour: torch.Tensor
    versions: torch.Tensor
    advantages: torch.Tensor
    shared: SharedPrefixes | None = None


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


def pack(rows: Sequence[Row], *, budget: int, device: torch.device, share: bool = False) -> list[MicroBatch]:
    """Micro-batches that hold every trained token of `rows` once. `share`: the model can share prefixes."""
    if share and max((row.length for row in rows), default=0) <= LONGEST:
        return [_shared_batch(rows, families, device) for families in plan_families(rows, budget=budget)]
    plan = plan_micro_batches([row.length for row in rows], budget=budget)
    return [_padded_batch(rows, indices, device) for indices in plan]


@dataclass(frozen=True)
class Family:
    """Rows (their indices, longest first) that begin with the same `prefix` tokens, none of them trained on. `longest`
    is the longest row less the prefix."""

    prefix: int
    rows: tuple[int, ...]
    longest: int


def plan_families(rows: Sequence[Row], *, budget: int) -> list[list[Family]]:
    """The rows of each group as a family, or as several where they exceed the budget; families in micro-batches. A
    micro-batch is all of families with a prefix or all of families without one."""
    groups: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        if row.length > 0:
            groups.setdefault(row.group, []).append(index)
    families = [family for members in groups.values() for family in _families(rows, members, budget)]
    families.sort(key=lambda family: (family.prefix == 0, -family.longest, family.rows))
    batches: list[list[Family]] = []
    cost = 0
    for family in families:
        # Attention pads every row of a micro-batch to its longest, which the first family has.
        first = batches[-1][0] if batches else family
        padded = family.prefix + len(family.rows) * first.longest
        if not batches or cost + padded > budget or (first.prefix == 0) != (family.prefix == 0):
            batches.append([])
            cost, padded = 0, family.prefix + len(family.rows) * family.longest
        batches[-1].append(family)
        cost += padded
    return batches


def _families(rows: Sequence[Row], members: Sequence[int], budget: int) -> list[Family]:
    prefix = _common_prefix([rows[index] for index in members])
    order = sorted(members, key=lambda index: (-rows[index].length, index))
    families = []
    while order:
        longest = rows[order[0]].length - prefix
        size = max(1, (budget - prefix) // longest)
        families.append(Family(prefix, tuple(order[:size]), longest))
        order = order[size:]
    return families


def _common_prefix(rows: Sequence[Row]) -> int:
    """Tokens that all `rows` begin with, less those that predict a trained one; 0 where sharing would save nothing."""
    if len(rows) < 2:
        return 0
    limit = min(int(np.argmax(row.mask)) - 1 for row in rows)
    first = rows[0].tokens[:limit]
    for row in rows[1:]:
        different = np.flatnonzero(first != row.tokens[: len(first)])
        first = first[: different[0]] if different.size else first
    return max(0, len(first))


def _shared_batch(rows: Sequence[Row], families: Sequence[Family], device: torch.device) -> MicroBatch:
    begun = [family for family in families if family.prefix]
    indices = tuple(index for family in families for index in family.rows)
    starts = [family.prefix for family in families for _ in family.rows]
    numbers = [number for number, family in enumerate(begun) for _ in family.rows]
    lengths = [rows[index].length - start for index, start in zip(indices, starts, strict=True)]
    tokens = [rows[family.rows[0]].tokens[: family.prefix] for family in begun]
    tokens += [rows[index].tokens[start : rows[index].length] for index, start in zip(indices, starts, strict=True)]
    offsets = np.cumsum([0] + [len(each) for each in tokens])[len(begun) : -1] - starts
    shared = lay_out([family.prefix for family in begun], lengths, numbers, device=device)
    return _micro_batch(rows, indices, np.concatenate(tokens)[None], offsets.tolist(), device, shared)


def _padded_batch(rows: Sequence[Row], indices: tuple[int, ...], device: torch.device) -> MicroBatch:
    width = _padded(rows[indices[0]].length)
    tokens = np.zeros((len(indices), width), dtype=np.int64)
    for place, index in enumerate(indices):
        tokens[place, : rows[index].length] = rows[index].tokens[: rows[index].length]
    return _micro_batch(rows, indices, tokens, range(0, len(indices) * width, width), device, None)


def _micro_batch(
    rows: Sequence[Row],
    indices: tuple[int, ...],
    tokens: npt.NDArray[np.int64],
    offsets: Sequence[int],
    device: torch.device,
    shared: SharedPrefixes | None,
) -> MicroBatch:
    """`offsets`: where the first token of each row stands, or would stand, in the flattened `tokens`."""
    positions, targets, behaviour, versions, advantages = [], [], [], [], []
    for offset, index in zip(offsets, indices, strict=True):
        row = rows[index]
        assert not row.mask[0], "the first token of a sequence has nothing to be predicted from"
        trained = np.flatnonzero(row.mask)
        positions.append(offset + trained - 1)
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
        shared=shared,
    )


def _padded(length: int) -> int:
    return -(-length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
