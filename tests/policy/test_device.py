import threading

import pytest
import torch

from springtide.core.errors import UsageError
from springtide.policy.device import (
    CPU,
    autocast,
    choose_device,
    compute_dtype,
    random_state,
    restore_random_state,
    set_lane_threads,
)


def test_a_lane_sets_its_own_threads_only():
    found = {}
    ready = threading.Barrier(2)

    def lane(name, count):
        set_lane_threads(count)
        ready.wait()
        torch.ones(4) @ torch.ones(4)
        found[name] = torch.get_num_threads()

    lanes = [threading.Thread(target=lane, args=pair) for pair in (("engine", 3), ("trainer", 2))]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()
    assert found == {"engine": 3, "trainer": 2}


def test_an_absent_device_is_named():
    assert choose_device("cpu") == CPU
    with pytest.raises(UsageError, match="device 'xpu' is not available"):
        choose_device("xpu")


def test_dtypes():
    assert compute_dtype("auto", CPU) is torch.float32
    assert compute_dtype("bfloat16", CPU) is torch.bfloat16
    with autocast(CPU, torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16
    with autocast(CPU, torch.float32):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


def test_a_restored_random_state_continues_the_stream():
    states = random_state(CPU)
    expected = torch.rand(3)
    restore_random_state(CPU, states)
    assert torch.equal(torch.rand(3), expected)
