"""Rows of one new token, attended to by the compiled kernel: each reads exactly its own KV, wherever its block is."""

from collections.abc import Sequence

import torch

from springtide.engines.group import AttentionOptions, Row
from springtide.engines.native import DecodeKernel
from springtide.engines.storage import Storage


class SingleRows:
    def __init__(self, rows: Sequence[Row], storage: Storage, kernels: Sequence[DecodeKernel]) -> None:
        self.tokens = len(rows)
        self._kernels = kernels
        device = storage.device
        self._offset = torch.tensor([row.block.offset for row in rows], device=device)
        self._length = torch.tensor([row.block.length for row in rows], device=device)
        self._last = torch.tensor([row.start + 1 for row in rows], device=device)
        self._zero = torch.zeros_like(self._last)

    def advance(self) -> None:
        self._last += 1

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        window = options.window
        first = self._zero if window is None else (self._last - window).clamp_(min=0)
        places = (self._offset, self._length, first, self._last)
        return self._kernels[layer].attend(query, keys, values, places, options.scale)
