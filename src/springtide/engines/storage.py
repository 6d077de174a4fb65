"""The KV itself: per attention layer one plane of keys and one of values over all tokens of the engine's capacity.

A block of `length` tokens at `offset` holds, in every plane, a contiguous [heads, length, width] tensor. Blocks of
equal length that lie side by side are therefore one strided tensor [blocks, heads, length, width]: attention reads
it in place. Planes of one shape share a buffer, so that moving a sequence is one copy for all layers.
"""

from typing import NamedTuple

import numpy as np
import torch

from springtide.engines.blocks import Block


class PlaneShape(NamedTuple):
    """KV heads and the width of one head's key or value."""

    heads: int
    width: int


class LayerShape(NamedTuple):
    key: PlaneShape
    value: PlaneShape


HostCopy = tuple[torch.Tensor, ...]
"""Per shape, [planes, heads, tokens, width] in host memory."""


class Storage:
    def __init__(self, layers: list[LayerShape], capacity: int, *, device: torch.device, dtype: torch.dtype) -> None:
        counts: dict[PlaneShape, int] = {}
        self.layers = layers
        self.device = device
        self.dtype = dtype
        self._places: list[tuple[PlaneShape, int]] = []
        for layer in layers:
            for shape in layer:
                self._places.append((shape, counts.get(shape, 0)))
                counts[shape] = counts.get(shape, 0) + 1
        self._buffers = {
            shape: _zeros(count, capacity * shape.heads * shape.width, device=device, dtype=dtype)
            for shape, count in counts.items()
        }

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of one token in the first layer."""
        return sum(shape.heads * shape.width for shape in self.layers[0]) * self.dtype.itemsize

    @property
    def shapes(self) -> list[PlaneShape]:
        return list(self._buffers)

    def keys(self, layer: int) -> torch.Tensor:
        """The key plane of `layer`, flat."""
        shape, plane = self._places[2 * layer]
        return self._buffers[shape][plane]

    def values(self, layer: int) -> torch.Tensor:
        """The value plane of `layer`, flat."""
        shape, plane = self._places[2 * layer + 1]
        return self._buffers[shape][plane]

    def clear(self) -> None:
        for buffer in self._buffers.values():
            buffer.zero_()

    def copy(self, source: Block, target: Block, tokens: int) -> None:
        """Copy the first `tokens` tokens of a block."""
        for shape in self._buffers:
            self._view(shape, target, tokens).copy_(self._view(shape, source, tokens))

    def swap(self, first: Block, second: Block, tokens: int) -> None:
        """Exchange the first `tokens` tokens of two blocks of one length."""
        for shape in self._buffers:
            left, right = self._view(shape, first, tokens), self._view(shape, second, tokens)
            kept = left.clone()
            left.copy_(right)
            right.copy_(kept)

    def save(self, block: Block, tokens: int) -> HostCopy:
        """The first `tokens` tokens of a block, copied to host memory."""
        host = torch.device("cpu")
        return tuple(
            self._view(shape, block, tokens).to(host, copy=True, memory_format=torch.contiguous_format)
            for shape in self._buffers
        )

    def load(self, saved: HostCopy, block: Block, tokens: int) -> None:
        """The inverse of `save` for the first `tokens` tokens."""
        for shape, planes in zip(self._buffers, saved, strict=True):
            self._view(shape, block, tokens).copy_(planes[:, :, :tokens])

    def _view(self, shape: PlaneShape, block: Block, tokens: int) -> torch.Tensor:
        size = shape.heads * shape.width
        flat = self._buffers[shape][:, block.offset * size : (block.offset + block.length) * size]
        return flat.view(-1, shape.heads, block.length, shape.width)[:, :, :tokens]


ALIGNMENT = 64
"""Bytes, a cache line: as PyTorch aligns its own memory."""


def _zeros(rows: int, columns: int, *, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Zeros [rows, columns]. On the CPU the system gives the memory page by page, when a sequence first comes to it;
    PyTorch's own zeros are written, and so occupied, at once."""
    if device.type != "cpu":
        return torch.zeros(rows, columns, device=device, dtype=dtype)
    size = rows * columns * dtype.itemsize
    raw = torch.from_numpy(np.zeros(size + ALIGNMENT, dtype=np.uint8))
    start = -raw.data_ptr() % ALIGNMENT
    return raw[start : start + size].view(dtype).view(rows, columns)
