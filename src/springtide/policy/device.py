"""Where tensors live and how many threads compute on them: the only file that knows accelerators by name.

Thread counts are per lane. PyTorch keeps the number of intra-op threads per calling thread, so a lane sets its own
once, from inside the lane, and leaves other lanes alone.
"""

import ctypes
import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from springtide.policy.config import Device

CPU = torch.device("cpu")

HEAP = {"M_ARENA_MAX": (-8, 2), "M_MMAP_THRESHOLD": (-3, 32 << 20), "M_TRIM_THRESHOLD": (-1, 512 << 20)}
"""Numbers of the options in glibc's malloc.h, and their settings. 32 MiB is the most that a threshold for mmap can be
(HEAP_MAX_SIZE / 2)."""


def choose_device(name: Device) -> torch.device:
    """`auto` is the host's accelerator if PyTorch sees one, else the CPU."""
    if name == "cpu" or not torch.accelerator.is_available():
        return CPU
    return torch.accelerator.current_accelerator() or CPU


def synchronize(device: torch.device) -> None:
    """Wait until all that was launched on `device` is done."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def compute_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The dtype that `auto`, `float32` or `bfloat16` stands for on `device`."""
    if dtype == "auto":
        return torch.bfloat16 if _multiplies_bfloat16(device) else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]


def _multiplies_bfloat16(device: torch.device) -> bool:
    """Whether `device` is an accelerator that says that its hardware does; older GPUs only emulate it, slowly."""
    if device.type == "cpu":
        return False
    asked = getattr(torch.get_device_module(device), "is_bf16_supported", None)
    if asked is None:
        return False
    emulates = "including_emulation" in inspect.signature(asked).parameters
    return bool(asked(including_emulation=False) if emulates else asked())


def fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies it several times faster than float32, else float32."""
    if device.type != "cpu":
        return compute_dtype("auto", device)
    found: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return torch.bfloat16 if found.get("avx512_bf16") or found.get("amx_bf16") else torch.float32


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Compute in `dtype` on float32 weights; nothing to do where `dtype` is float32."""
    if dtype is torch.float32:
        return nullcontext()
    return torch.autocast(device_type=device.type, dtype=dtype)


def avoid_planned_attention(device: torch.device) -> None:
    """Keep attention of this process off the one backend that plans ahead for every shape: cuDNN's.

    Newer GPUs (Hopper, Blackwell) prefer it for masked attention. It makes and keeps a plan per shape, and an engine's
    shapes change with nearly every pass, so that it would plan more than it computes. By PyTorch's source; this has not
    been run on a GPU. The switch is the process's, not a thread's: one for each call would race with other lanes.
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)


def set_lane_threads(count: int) -> None:
    """Intra-op threads of the calling thread, from now on. Call it from inside the lane."""
    # The first query applies the process-wide default to this thread; only then does a setting of its own stick.
    torch.get_num_threads()
    torch.set_num_threads(count)


def configure_heap() -> None:
    """Have glibc share two heaps among all threads and keep what is freed, from now on; elsewhere without effect.

    By default each thread frees into a heap of its own, which grows to the largest step that this thread ever made, and
    lanes and PyTorch's threads are many. Larger tensors go back to the system when they are freed, and the next
    operation faults their pages in again one by one.
    """
    for option, value in HEAP.values():
        _c_library("mallopt", option, value)


def return_freed_memory() -> None:
    """Have glibc give back to the system what is free in its heaps; without effect under another C library."""
    _c_library("malloc_trim", 0)


@contextmanager
def kept_heap() -> Iterator[None]:
    """Freed memory stays with the process while a run lasts, and no longer: a process may make many."""
    configure_heap()
    try:
        yield
    finally:
        return_freed_memory()


def _c_library(name: str, *arguments: int) -> None:
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return
    function(*arguments)


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """States of the default generators that work on `device` may draw from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        states["accelerator"] = torch.get_device_module(device).get_rng_state(device)
    return states


def restore_random_state(device: torch.device, states: dict[str, torch.Tensor]) -> None:
    """The inverse of `random_state`. A state saved on an accelerator is left out on the CPU, and the reverse."""
    torch.set_rng_state(states["cpu"])
    if device.type != "cpu" and "accelerator" in states:
        torch.get_device_module(device).set_rng_state(states["accelerator"], device)
