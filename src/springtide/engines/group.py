"""Attention of rows that lie side by side, straight from their blocks.

Query heads that share a KV head are stacked along the query axis, so keys and values are never repeated. Masks are
made once per pass and window, shared by all layers, and moved on in place from one decode step to the next.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from springtide.engines.blocks import Block
from springtide.engines.storage import LayerShape, Storage
from springtide.policy.linear import has_onednn, product

PRODUCTS_QUERIES = 32
PRODUCTS_REACH = 512
"""New tokens and context from which two oneDNN products per row and head are faster than the fused kernel."""

STACKED_MASK = 1 << 22
"""Entries of a mask, or scores, up to which query heads that share a KV head go together; above, they take turns."""

REACH = 16
"""Attention reads KV up to the longest row, rounded up to this many tokens: few distinct shapes."""


class Row(NamedTuple):
    """A sequence in a pass: `start` tokens of KV are in its block, `new` ones follow."""

    block: Block
    start: int
    new: int


def row_order(row: Row) -> tuple[int, int, int]:
    """Sort key: rows that can share a group come together."""
    return (row.new - 1).bit_length(), row.block.length, row.block.offset


class AttentionOptions(NamedTuple):
    """What a layer asks of its attention: score scale, sliding window, soft cap of scores, sink logits [heads]."""

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None


class RowGroup:
    def __init__(self, rows: Sequence[Row], *, steps: int, storage: Storage) -> None:
        first, last = rows[0].block, rows[-1].block
        self.tokens = sum(row.new for row in rows)
        self._offset, self._length = first.offset, first.length
        self._blocks = (last.offset - first.offset) // first.length + 1
        self._queries = max(row.new for row in rows)
        needed = max(row.start + row.new for row in rows) + steps - 1
        self._reach = min(-(-needed // REACH) * REACH, first.length)
        places = [(row.block.offset - first.offset) // first.length for row in rows]
        starts = [0] * self._blocks
        for place, row in zip(places, rows, strict=True):
            starts[place] = row.start
        self._starts = torch.tensor(starts, device=storage.device)
        self._dtype = storage.dtype
        self._full = self.tokens == self._blocks * self._queries
        equal = self._full and len(set(starts)) == 1 and self._queries > 1
        self._mask_rows = 1 if equal else self._blocks
        self._spread = None if self._full else _spread(rows, places, self._queries, storage.device)
        self._masks: dict[tuple[int | None, int, int], torch.Tensor] = {}
        self._first_start = min(starts)
        in_float32_on_cpu = storage.device.type == "cpu" and storage.dtype == torch.float32
        long = self._queries >= PRODUCTS_QUERIES and self._reach >= PRODUCTS_REACH
        self._by_products = long and in_float32_on_cpu and has_onednn()
        self._direct = self._queries == 1 and in_float32_on_cpu

    def advance(self) -> None:
        self._starts += 1
        for (window, _, repeated), mask in self._masks.items():
            starts = self._starts.repeat_interleave(max(repeated, 1))
            newest = torch.arange(0, mask.numel(), self._reach, device=starts.device) + starts
            flat = mask.view(-1)
            if window is not None:
                outside = torch.where(starts >= window, newest - window, newest)
                flat.index_fill_(0, outside, float("-inf"))
            flat.index_fill_(0, newest, 0.0)

    def attend(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        shape: LayerShape,
        options: AttentionOptions,
    ) -> torch.Tensor:
        """`query` [tokens, heads, width] and the flat planes give [tokens, heads, value width]."""
        if self._spread is not None:
            padded = query.new_zeros(self._blocks * self._queries, *query.shape[1:])
            query = padded.index_copy_(0, self._spread, query)
        plain = options.softcap is None and options.sinks is None
        attend = self._decode if plain and self._direct else self._general
        result = attend(query, keys, values, shape, options)
        return result if self._spread is None else result[self._spread]

    def _decode(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        shape: LayerShape,
        options: AttentionOptions,
    ) -> torch.Tensor:
        """One query token per block, in float32 on the CPU: for so few queries three plain products are fastest."""
        blocks, heads, width = query.shape
        kv_heads = shape.key.heads
        stacked = query.reshape(blocks * kv_heads, heads // kv_heads, width)
        key, value = self._window(keys, *shape.key).flatten(0, 1), self._window(values, *shape.value).flatten(0, 1)
        mask = self._mask(options.window, 1, kv_heads)
        scores = torch.baddbmm(mask, stacked, key.transpose(1, 2), alpha=options.scale)
        return torch.bmm(scores.softmax(-1), value).view(blocks, heads, -1)

    def _general(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        shape: LayerShape,
        options: AttentionOptions,
    ) -> torch.Tensor:
        heads, width = query.shape[1:]
        kv_heads = shape.key.heads
        sharing = heads // kv_heads
        # [blocks, queries, KV heads, sharing, width] -> [blocks, KV heads, sharing, queries, width]
        query = query.view(self._blocks, self._queries, kv_heads, sharing, width).permute(0, 2, 3, 1, 4)
        key, value = self._window(keys, *shape.key), self._window(values, *shape.value)
        stacked = 1 if self._queries == 1 else sharing
        if options.softcap is not None or options.sinks is not None:
            result = _explicit(query.flatten(2, 3), key, value, self._mask(options.window, stacked, 0), options)
        elif self._by_products and self._queries * self._reach * stacked <= STACKED_MASK:
            result = self._products(query.flatten(2, 3), key, value, self._mask(options.window, stacked, 0), options)
        elif self._mask_rows * self._queries * self._reach * stacked <= STACKED_MASK:
            mask = self._mask(options.window, stacked, 0)
            result = scaled_dot_product_attention(query.flatten(2, 3), key, value, mask, scale=options.scale)
        else:
            mask = self._mask(options.window, 1, 0)
            pieces = [scaled_dot_product_attention(q, key, value, mask, scale=options.scale) for q in query.unbind(2)]
            result = torch.stack(pieces, dim=2)
        # Fused kernels return their own strides: memory-efficient attention, for one, [blocks, queries, heads, width].
        result = result.reshape(self._blocks, heads, self._queries, -1).transpose(1, 2)
        return result.reshape(self._blocks * self._queries, heads, -1)

    def _products(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        """In float32 on the CPU, over long contexts: one KV head of one row at a time by the faster matrix product."""
        # Nothing before the first row's new tokens is hidden from anyone, unless by a window.
        visible = 0 if options.window is not None else self._first_start
        heads = key.shape[1]
        masks = mask[:, 0, :, visible:].unbind(0)
        rows = []
        each = zip(*(part.flatten(0, 1).unbind(0) for part in (query * options.scale, key, value)), strict=True)
        for index, (q, k, v) in enumerate(each):
            scores = product(q, k)
            scores[:, visible:] += masks[index // heads if len(masks) > 1 else 0]
            rows.append(product(scores.softmax(-1), v.t()))
        return torch.stack(rows).view(self._blocks, heads, query.shape[2], -1)

    def _window(self, plane: torch.Tensor, heads: int, width: int) -> torch.Tensor:
        """The group's KV in a flat plane, [blocks, heads, reach, width], in place."""
        length = self._length
        return plane.as_strided(
            (self._blocks, heads, self._reach, width),
            (length * heads * width, length * width, width, 1),
            plane.storage_offset() + self._offset * heads * width,
        )

    def _mask(self, window: int | None, stacked: int, repeated: int) -> torch.Tensor:
        """Additive, [blocks or 1, 1, stacked * queries, reach]; if `repeated`, [blocks * repeated, 1, reach]."""
        mask = self._masks.get((window, stacked, repeated))
        if mask is None:
            starts = self._starts[: self._mask_rows]
            steps = torch.arange(self._queries, device=starts.device)
            # Clamped so that the padding of a shorter row still sees something and stays finite.
            position = (starts[:, None] + steps).clamp_(max=self._reach - 1)[:, :, None]
            column = torch.arange(self._reach, device=starts.device)
            hidden = column > position
            if window is not None:
                hidden |= column <= position - window
            mask = torch.zeros(hidden.shape, device=starts.device, dtype=self._dtype)
            mask.masked_fill_(hidden, float("-inf"))
            mask = mask.repeat_interleave(repeated, 0) if repeated else mask[:, None].repeat(1, 1, stacked, 1)
            self._masks[window, stacked, repeated] = mask
        return mask


def _spread(rows: Sequence[Row], places: list[int], queries: int, device: torch.device) -> torch.Tensor:
    """Where each packed token of a ragged group stands in [blocks * queries]."""
    return torch.cat(
        [
            torch.arange(place * queries, place * queries + row.new, device=device)
            for place, row in zip(places, rows, strict=True)
        ]
    )


def _explicit(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, options: AttentionOptions
) -> torch.Tensor:
    """Attention written out, for what the fused kernels lack: soft-capped scores and attention sinks."""
    scores = torch.matmul(query, key.transpose(-1, -2)).float() * options.scale
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    scores = scores + mask
    if options.sinks is not None:
        blocks, kv_heads, stacked, reach = scores.shape
        sharing = options.sinks.numel() // kv_heads
        sinks = options.sinks.float().view(1, kv_heads, sharing, 1).expand(blocks, -1, -1, stacked // sharing)
        scores = torch.cat([scores, sinks.reshape(blocks, kv_heads, stacked, 1)], dim=-1)
        return torch.matmul(scores.softmax(-1)[..., :reach].to(value.dtype), value)
    return torch.matmul(scores.softmax(-1).to(value.dtype), value)
