import torch

from springtide.policy.random import stream_key, uniforms


def test_streams_differ_in_every_part_and_are_stable_across_processes() -> None:
    base = (3, "train", 5, 2, 1)
    keys = {stream_key(*base)}
    for other in ((4, "train", 5, 2, 1), (3, "evaluate", 5, 2, 1), (3, "train", 6, 2, 1), (3, "train", 5, 3, 1)):
        keys.add(stream_key(*other))
    keys.add(stream_key(3, "train", 5, 2, 2))
    assert len(keys) == 6
    assert all(-(2**63) <= key < 2**63 for key in keys)
    assert stream_key(*base) == 520786087992306320


def test_numbers_are_uniform_and_independent_of_the_batch() -> None:
    keys = torch.tensor([stream_key(0, "train", group, 0, 1) for group in range(64)])
    numbers = uniforms(keys[:, None], torch.arange(1000))
    assert numbers.dtype == torch.float64
    assert numbers.min() > 0
    assert numbers.max() <= 1
    # Standard errors: mean 0.0011, variance 0.0003, correlation of neighbours 0.004.
    assert abs(float(numbers.mean()) - 0.5) < 0.006
    assert abs(float(numbers.var()) - 1 / 12) < 0.0015
    for shifted in (numbers[:, 1:] * numbers[:, :-1], numbers[1:] * numbers[:-1]):
        assert abs(float(shifted.mean()) - 0.25) < 0.006
    assert torch.equal(numbers[7, 30:33], uniforms(keys[7].expand(3), torch.arange(30, 33)))


def test_mixing_is_splitmix64() -> None:
    # Stream 0 mixes to 0, so position 0 is the first output of splitmix64 seeded with 0: 0xE220A8397B1DCDAF.
    expected = ((0xE220A8397B1DCDAF >> 11) + 1) / 2**53
    assert float(uniforms(torch.tensor([0]), torch.tensor([0]))) == expected
