"""All rows of a pass, attended to by the compiled kernel: each reads exactly its own KV, wherever its block is."""

from collections.abc import Sequence

import torch

from springtide.engines.group import AttentionOptions, Row
from springtide.engines.native import AttentionKernel
from springtide.engines.storage import Storage

Tasks = tuple[torch.Tensor, torch.Tensor]
"""Rows and, within each, the first new token, both [tasks]."""


class NativeRows:
    def __init__(self, rows: Sequence[Row], storage: Storage, kernels: Sequence[AttentionKernel]) -> None:
        self._kernels = kernels
        device = storage.device
        self._new = torch.tensor([row.new for row in rows], device=device)
        self._offset = torch.tensor([row.block.offset for row in rows], device=device)
        self._length = torch.tensor([row.block.length for row in rows], device=device)
        self._start = torch.tensor([row.start for row in rows], device=device)
        self._packed = self._new.cumsum(0) - self._new
        self._tasks: dict[int, Tasks] = {}

    def advance(self) -> None:
        self._start += 1

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        kernel = self._kernels[layer]
        if kernel.task_tokens not in self._tasks:
            self._tasks[kernel.task_tokens] = self._split(kernel.task_tokens)
        rows = (self._offset, self._length, self._start, self._new, self._packed)
        return kernel.attend(query, keys, values, rows, self._tasks[kernel.task_tokens], options)

    def _split(self, tokens: int) -> Tasks:
        """The new tokens of all rows in pieces of at most `tokens`."""
        pieces = (self._new + tokens - 1) // tokens
        row = torch.repeat_interleave(torch.arange(len(pieces), device=pieces.device), pieces)
        before = (pieces.cumsum(0) - pieces)[row]
        return row, (torch.arange(len(row), device=row.device) - before) * tokens
