"""Sequences with a common beginning, each beginning computed once.

The members of a group read the same prompt. Laid out as [all prefixes | all continuations], packed without padding,
everything that works token by token sees each prompt token once; only attention looks at rows, and there every
continuation reads the keys of its own prefix and then its own. The result is that of whole sequences: a token sees
the same tokens at the same positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class SharedPrefixes:
    """Where the packed tokens stand. P and S are the longest prefix and continuation; P is 0 without prefixes.

    `positions` [tokens] in their own sequences; `prefix_places` in [prefixes * P] and `row_places` in [rows * S] of the
    tokens of the prefixes and of the continuations; `prefix_of_row` [rows]. `hidden` [rows, 1, P] is -inf where a
    row's prefix has ended, None where all are equally long.
    """

    positions: torch.Tensor
    prefixes: int
    prefix_length: int
    prefix_places: torch.Tensor
    rows: int
    row_length: int
    row_places: torch.Tensor
    prefix_of_row: torch.Tensor
    hidden: torch.Tensor | None


def lay_out(
    prefixes: Sequence[int], rows: Sequence[int], prefix_of_row: Sequence[int], *, device: torch.device
) -> SharedPrefixes:
    """`prefixes` and `rows` are lengths, those of `rows` without their prefixes and at least 1. Either every row has a
    prefix or there are none."""
    prefix_length, row_length = max(prefixes, default=0), max(rows)
    starts = [prefixes[prefix] for prefix in prefix_of_row] if prefixes else [0] * len(rows)
    positions = [range(length) for length in prefixes]
    positions += [range(start, start + length) for start, length in zip(starts, rows, strict=True)]
    hidden = None
    if len(set(starts)) > 1:
        beyond = torch.arange(prefix_length) >= torch.tensor(starts)[:, None]
        hidden = torch.zeros(beyond.shape).masked_fill_(beyond, float("-inf")).unsqueeze(1).to(device)
    return SharedPrefixes(
        positions=torch.tensor([position for each in positions for position in each], device=device),
        prefixes=len(prefixes),
        prefix_length=prefix_length,
        prefix_places=_places(prefixes, prefix_length, device),
        rows=len(rows),
        row_length=row_length,
        row_places=_places(rows, row_length, device),
        prefix_of_row=torch.tensor(prefix_of_row, device=device),
        hidden=hidden,
    )


def _places(lengths: Sequence[int], width: int, device: torch.device) -> torch.Tensor:
    places = [row * width + column for row, length in enumerate(lengths) for column in range(length)]
    return torch.tensor(places, dtype=torch.long, device=device)


def spread(packed: torch.Tensor, places: torch.Tensor, rows: int, width: int) -> torch.Tensor:
    """Packed [tokens, heads, size] to [rows, heads, width, size], zero where there is no token."""
    if len(places) < rows * width:
        packed = _Spread.apply(packed, places, rows * width)  # type: ignore[no-untyped-call]
    return packed.view(rows, width, *packed.shape[1:]).transpose(1, 2)


def gather(padded: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The inverse of `spread`."""
    flat = padded.transpose(1, 2).flatten(0, 1)
    return flat if len(places) == len(flat) else _Gather.apply(flat, places)  # type: ignore[no-untyped-call]


class _Spread(torch.autograd.Function):
    """Rows of `packed` put at `places`, each at most once; the gradient is read from there."""

    @staticmethod
    def forward(ctx: Any, packed: torch.Tensor, places: torch.Tensor, size: int) -> torch.Tensor:
        ctx.save_for_backward(places)
        return packed.new_zeros(size, *packed.shape[1:]).index_copy_(0, places, packed)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return gradient.index_select(0, places), None, None


class _Gather(torch.autograd.Function):
    """Rows of `padded` at `places`, each at most once; the gradient is put there."""

    @staticmethod
    def forward(ctx: Any, padded: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(places)
        ctx.size = len(padded)
        return padded.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (places,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.size, *gradient.shape[1:]).index_copy_(0, places, gradient), None
