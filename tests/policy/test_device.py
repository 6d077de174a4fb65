import ctypes
import threading
from types import SimpleNamespace

import pytest
import torch

from springtide.policy.device import (
    CPU,
    autocast,
    avoid_planned_attention,
    choose_device,
    compute_dtype,
    configure_heap,
    fast_dtype,
    random_state,
    restore_random_state,
    return_freed_memory,
    set_lane_threads,
)

ACCELERATOR = torch.device("xpu")


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


def test_the_cpu_can_be_chosen_on_a_host_with_an_accelerator(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: ACCELERATOR)
    assert choose_device("auto") == ACCELERATOR
    assert choose_device("cpu") == CPU
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert choose_device("auto") == CPU


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (SimpleNamespace(is_bf16_supported=lambda including_emulation=True: including_emulation), torch.float32),
        (SimpleNamespace(is_bf16_supported=lambda including_emulation=True: True), torch.bfloat16),
        (SimpleNamespace(is_bf16_supported=lambda: True), torch.bfloat16),
        (SimpleNamespace(), torch.float32),
    ],
    ids=["emulated", "in hardware", "one answer", "unasked"],
)
def test_an_accelerator_computes_in_bfloat16_by_default_where_its_hardware_does(monkeypatch, module, expected):
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    assert compute_dtype("auto", ACCELERATOR) is fast_dtype(ACCELERATOR) is expected
    assert compute_dtype("bfloat16", ACCELERATOR) is torch.bfloat16


def test_attention_that_plans_for_every_shape_is_off_on_its_accelerator_alone():
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        avoid_planned_attention(CPU)
        assert torch.backends.cuda.cudnn_sdp_enabled()
        avoid_planned_attention(torch.device("cuda"))
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@pytest.mark.parametrize("missing", [OSError, TypeError, None])
def test_another_c_library_is_left_alone(monkeypatch, missing):
    def load(name):
        if missing is not None:
            raise missing("no such library")
        return SimpleNamespace()

    monkeypatch.setattr(ctypes, "CDLL", load)
    configure_heap()
    return_freed_memory()


def test_glibc_is_told_in_its_own_numbers(monkeypatch):
    calls = []
    library = SimpleNamespace(
        mallopt=lambda *arguments: calls.append(("mallopt", *arguments)),
        malloc_trim=lambda *arguments: calls.append(("malloc_trim", *arguments)),
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    configure_heap()
    return_freed_memory()
    assert calls == [("mallopt", -8, 2), ("mallopt", -3, 32 << 20), ("mallopt", -1, 512 << 20), ("malloc_trim", 0)]


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
