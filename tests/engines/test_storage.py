"""Memory for KV is set aside at once and occupied when it is needed."""

from pathlib import Path

import pytest
import torch

from springtide.engines.storage import ALIGNMENT, LayerShape, PlaneShape, Storage
from springtide.policy.device import CPU

STATUS = Path("/proc/self/statm")
WIDTH = PlaneShape(4, 32)


def _storage(capacity: int, dtype: torch.dtype = torch.float32) -> Storage:
    return Storage([LayerShape(WIDTH, WIDTH)] * 2, capacity, device=CPU, dtype=dtype)


def _resident_pages() -> int:
    return int(STATUS.read_text().split()[1])


@pytest.mark.skipif(not STATUS.exists(), reason="needs /proc")
def test_capacity_that_no_sequence_uses_occupies_no_memory() -> None:
    before = _resident_pages()
    storage = _storage(1 << 20)
    assert storage.bytes_per_token * 2 << 20 == 1 << 31
    assert (_resident_pages() - before) * 4096 < 1 << 28


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_planes_are_zero_aligned_and_apart(dtype: torch.dtype) -> None:
    storage = _storage(128, dtype)
    planes = [plane for layer in range(2) for plane in (storage.keys(layer), storage.values(layer))]
    for number, plane in enumerate(planes, 1):
        assert (plane.dtype, plane.shape) == (dtype, (128 * 4 * 32,))
        assert plane.data_ptr() % ALIGNMENT == 0
        assert not plane.any()
        plane.fill_(number)
    assert [plane.unique().tolist() for plane in planes] == [[1], [2], [3], [4]]
    storage.clear()
    assert not any(plane.any() for plane in planes)
