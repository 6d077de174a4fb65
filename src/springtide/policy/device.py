"""Where tensors live and how many threads compute on them: the only file that knows accelerators by name.

Thread counts are per lane. PyTorch keeps the number of intra-op threads per calling thread, so a lane sets its own
once, from inside the lane, and leaves other lanes alone.
"""

from contextlib import AbstractContextManager, nullcontext

import torch

from springtide.core.errors import UsageError

CPU = torch.device("cpu")


def choose_device(name: str = "auto") -> torch.device:
    """The device called `name`; `auto` is the host's accelerator if PyTorch sees one, else the CPU."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name == "auto":
        return accelerator or CPU
    if name == "cpu":
        return CPU
    if accelerator is None or torch.device(name).type != accelerator.type:
        found = "only the CPU" if accelerator is None else f"'{accelerator.type}'"
        raise UsageError(f"device '{name}' is not available: PyTorch sees {found} here; use 'auto'.")
    return torch.device(name)


def compute_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The dtype that `auto`, `float32` or `bfloat16` stands for on `device`."""
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]


def fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies it several times faster than float32, else float32."""
    if device.type != "cpu":
        return torch.bfloat16
    found: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return torch.bfloat16 if found.get("avx512_bf16") or found.get("amx_bf16") else torch.float32


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Compute in `dtype` on float32 weights; nothing to do where `dtype` is float32."""
    if dtype is torch.float32:
        return nullcontext()
    return torch.autocast(device_type=device.type, dtype=dtype)


def set_lane_threads(count: int) -> None:
    """Intra-op threads of the calling thread, from now on. Call it from inside the lane."""
    # The first query applies the process-wide default to this thread; only then does a setting of its own stick.
    torch.get_num_threads()
    torch.set_num_threads(count)


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
