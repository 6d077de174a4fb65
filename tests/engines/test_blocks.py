from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from springtide.engines.blocks import UNIT, Block, Blocks, block_length


@given(
    capacity=st.integers(UNIT, 40 * UNIT),
    actions=st.lists(
        st.one_of(st.integers(1, 20 * UNIT), st.just(-1), st.just(-2), st.integers(-99, -10)), max_size=60
    ),
)
def test_blocks_are_disjoint_aligned_and_never_exceed_the_capacity(capacity: int, actions: list[int]) -> None:
    blocks = Blocks(capacity)
    held: list[Block] = []
    for action in actions:
        if action > 0:
            block = blocks.allocate(action)
            if block is not None:
                assert block.length >= action
                assert block.offset % block.length == 0
                held.append(block)
        elif action <= -10:
            block = Block(-action % 8 * 2 * UNIT, 2 * UNIT)
            overlapping = any(
                b.offset < block.offset + block.length and block.offset < b.offset + b.length for b in held
            )
            taken = blocks.take(block)
            assert taken == (not overlapping and block.offset + block.length <= blocks.capacity)
            held += [block] * taken
        elif held:
            blocks.free(held.pop(0 if action == -1 else -1))
        ordered = sorted(held)
        assert all(a.offset + a.length <= b.offset for a, b in pairwise(ordered))
        assert not ordered or ordered[-1].offset + ordered[-1].length <= capacity
        assert blocks.reserved == sum(block.length for block in held)
    for block in held:
        blocks.free(block)
    assert blocks.allocate(blocks.largest) == Block(0, blocks.largest), "returned blocks merge into what there was"


def test_block_lengths_double() -> None:
    assert [block_length(n) for n in (1, 64, 65, 128, 129, 300)] == [64, 64, 128, 128, 256, 512]


def test_blocks_of_one_length_come_side_by_side() -> None:
    blocks = Blocks(16 * UNIT)
    assert [blocks.allocate(UNIT) for _ in range(3)] == [Block(0, 64), Block(64, 64), Block(128, 64)]
    assert blocks.allocate(2 * UNIT) == Block(256, 128)
    assert blocks.allocate(16 * UNIT) is None
