"""One forward pass over many sequences: packed tokens in, attention over the blocks where their KV lives.

All new tokens of all rows are packed into one [1, tokens] input, so projections and experts see no padding. Only
attention looks at rows: one by one in a compiled kernel, or, where there is none, in groups. Rows whose blocks lie side
by side form a group that reads its KV as one strided tensor, without a gather. A group is as long as its longest row,
and blocks of one length hold sequences within a factor of two, so short sequences do not pay for long ones.

Invariant: a token sees exactly the KV of its own row at positions up to its own (and inside the layer's sliding
window); what else lies in a block is masked.
"""

from collections.abc import Sequence

import torch

from springtide.engines.group import AttentionOptions, Row, RowGroup, row_order
from springtide.engines.native import AttentionKernel
from springtide.engines.native_rows import NativeRows
from springtide.engines.storage import Storage

HOLE_BYTES = {"cpu": 1 << 18}
"""KV bytes per layer of others' blocks that a decode group may span: reading them costs about as much as one more
group would."""
HOLE_BYTES_ACCELERATOR = 1 << 24

GROUP_MASK = 1 << 25
"""Entries that the mask of a prefill group may have, so that long contexts do not need masks of gigabytes."""


class Batch:
    """A pass over `rows`, which are in `row_order`. `steps` of one token each may follow by `advance`.

    `kernels`, one per layer, replace groups where they are given.
    """

    def __init__(
        self,
        storage: Storage,
        rows: Sequence[Row],
        *,
        steps: int = 1,
        kernels: Sequence[AttentionKernel] | None = None,
    ) -> None:
        self._storage = storage
        device = storage.device
        starts = torch.tensor([row.start for row in rows], device=device)
        counts = torch.tensor([row.new for row in rows], device=device)
        ends = counts.cumsum(0)
        self.tokens = sum(row.new for row in rows)
        row_of_token = torch.repeat_interleave(torch.arange(len(rows), device=device), counts, output_size=self.tokens)
        self.positions = torch.arange(self.tokens, device=device) - (ends - counts - starts)[row_of_token]
        self.last = ends - 1
        offsets = torch.tensor([row.block.offset for row in rows], device=device)[row_of_token]
        lengths = torch.tensor([row.block.length for row in rows], device=device)[row_of_token]
        self._places = {
            heads: (
                (offsets * heads + self.positions)[:, None] + lengths[:, None] * torch.arange(heads, device=device)
            ).flatten()
            for heads in dict.fromkeys(shape.heads for shape in storage.shapes)
        }
        self._native = None if kernels is None else NativeRows(rows, storage, kernels)
        grouped = adjacent(rows, storage) if kernels is None else []
        self._groups = [RowGroup(members, steps=steps, storage=storage) for members in grouped]

    def advance(self) -> None:
        """Move on by one token per row; only for passes whose rows have one new token each."""
        self.positions += 1
        for places in self._places.values():
            places += 1
        if self._native is not None:
            self._native.advance()
        for group in self._groups:
            group.advance()

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        """Store key and value [tokens, KV heads, width], then attend query [tokens, heads, width] to each row's KV."""
        keys, values = self._storage.keys(layer), self._storage.values(layer)
        for plane, new in ((keys, key), (values, value)):
            heads, width = new.shape[1:]
            plane.view(-1, width).index_copy_(0, self._places[heads], new.reshape(-1, width))
        if self._native is not None:
            return self._native.attend(layer, query, keys, values, options)
        shape = self._storage.layers[layer]
        pieces = torch.split(query, [group.tokens for group in self._groups])
        results = [
            group.attend(piece, keys, values, shape, options) for group, piece in zip(self._groups, pieces, strict=True)
        ]
        return results[0] if len(results) == 1 else torch.cat(results)


def adjacent(rows: Sequence[Row], storage: Storage) -> list[list[Row]]:
    """Rows in order, cut into groups of equal block length and similar count whose blocks lie side by side.

    Rows of one new token may have a few blocks of others between them.
    """
    spare = HOLE_BYTES.get(storage.device.type, HOLE_BYTES_ACCELERATOR) // storage.bytes_per_token
    groups: list[list[Row]] = []
    kind, end = (-1, -1), 0
    for row in rows:
        offset, length = row.block
        if row_order(row)[:2] != kind:
            fits = False
        elif row.new == 1:
            fits = offset - end <= spare
        else:
            fits = offset == end and _mask_size(groups[-1], row) <= GROUP_MASK
        if fits:
            groups[-1].append(row)
        else:
            groups.append([row])
        kind, end = row_order(row)[:2], offset + length
    return groups


def _mask_size(group: Sequence[Row], row: Row) -> int:
    """Entries of the mask of `group` with `row` added, at most."""
    # Counts within a group differ by less than a factor of two.
    return (len(group) + 1) * 2 * row.new * row.block.length
