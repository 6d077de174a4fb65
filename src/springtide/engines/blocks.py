"""Where KV may live: contiguous blocks of a fixed number of tokens, handed out by a buddy allocator.

Invariants: blocks never overlap; a block's length is a power of two (times `UNIT`) and its offset a multiple of it;
the reserved tokens never exceed the capacity. Blocks of one length are handed out at the lowest address first, so
that sequences of similar length end up side by side and can be attended to as one strided tensor. When all blocks
are returned the allocator is as new, so that what follows does not depend on what came before.
"""

from bisect import bisect_left, insort
from math import log
from typing import NamedTuple

UNIT = 64
"""Tokens in the smallest block."""

PADDING = 1 / log(2)
"""Tokens reserved per token held, over lengths that are spread evenly on a logarithmic scale."""


class Block(NamedTuple):
    """Room for the KV of `length` tokens from `offset` on."""

    offset: int
    length: int


class Blocks:
    def __init__(self, capacity: int) -> None:
        """`capacity` in tokens is rounded down to whole units."""
        self.capacity = capacity // UNIT * UNIT
        self.reserved = 0
        self._free: dict[int, list[int]] = {}
        offset = 0
        while offset < self.capacity:
            length = UNIT << ((self.capacity - offset) // UNIT).bit_length() - 1
            self._free[length] = [offset]
            offset += length
        self.largest = max(self._free, default=0)

    def allocate(self, tokens: int) -> Block | None:
        """The smallest block that holds `tokens`, or None if no free one does."""
        wanted = block_length(tokens)
        length = wanted
        while not self._free.get(length):
            length *= 2
            if length > self.largest:
                return None
        block = Block(self._free[length][0], wanted)
        self._split(Block(block.offset, length), block)
        return block

    def take(self, block: Block) -> bool:
        """Hand out this very block, if it is free."""
        length = block.length
        while length <= self.largest:
            whole = Block(block.offset // length * length, length)
            if whole.offset in self._free.get(length, ()):
                self._split(whole, block)
                return True
            length *= 2
        return False

    def _split(self, whole: Block, block: Block) -> None:
        """Hand out `block` of the free block `whole`; what remains is free."""
        offset, length = whole
        self._free[length].remove(offset)
        while length > block.length:
            length //= 2
            near = offset if block.offset < offset + length else offset + length
            insort(self._free.setdefault(length, []), offset + length if near == offset else offset)
            offset = near
        self.reserved += block.length

    def free(self, block: Block) -> None:
        offset, length = block
        self.reserved -= length
        while True:
            siblings = self._free.setdefault(length, [])
            buddy = offset ^ length
            index = bisect_left(siblings, buddy)
            if index == len(siblings) or siblings[index] != buddy:
                insort(siblings, offset)
                return
            del siblings[index]
            offset = min(offset, buddy)
            length *= 2


def block_length(tokens: int) -> int:
    """Tokens that a block for `tokens` reserves."""
    return UNIT << ((max(tokens, 1) - 1) // UNIT).bit_length()
