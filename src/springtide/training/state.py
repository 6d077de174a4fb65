"""A trainer's state as files: tensors in safetensors, the rest in `trainer.json`.

Whoever keeps the files proves that they are those that were written (checkpoint.py does); what is loaded is then bit
for bit what was saved. A file that is missing or cannot be read is a `RunDamagedError` that names it.
"""

import errno
import os
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from springtide.core.errors import RunDamagedError
from springtide.policy.digest import named_weights
from springtide.training.manifest import read_sealed, write_sealed

FORMAT = 1
MODEL, REFERENCE, OPTIMIZER, RANDOM, INDEX = (
    "model.safetensors",
    "reference.safetensors",
    "optimizer.safetensors",
    "random.safetensors",
    "trainer.json",
)


def write_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Save to safetensors. OSError as for any file, a full disk included."""
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        # The library reports the operating system's errors as text only.
        number = re.search(r"os error (\d+)", str(error))
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code), str(path)) from error


def write_index(folder: Path, fields: dict[str, Any]) -> None:
    """Write `trainer.json` with `fields`."""
    write_sealed(folder / INDEX, {"format": FORMAT, **fields})


def read_index(folder: Path) -> dict[str, Any]:
    """The inverse of `write_index`."""
    path = folder / INDEX
    try:
        index = read_sealed(path)
    except (OSError, ValueError) as error:
        raise RunDamagedError(f"{path} cannot be read ({error}); resume from another checkpoint.") from error
    if index["format"] != FORMAT:
        raise RunDamagedError(
            f"{path} has format {index['format']!r}, this version of Springtide reads {FORMAT}; "
            "continue the run with the version that wrote it."
        )
    return index


def load_policy(model: torch.nn.Module, folder: Path) -> int:
    """Only the weights of a trainer's saved state, for evaluation and export; returns the version number."""
    index = read_index(folder)
    source = folder / MODEL
    set_model_tensors(model, read_tensors(source), source=source)
    step: int = index["step"]
    return step


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a safetensors file, on the CPU and backed by the file: copy what is to outlive it."""
    try:
        tensors: dict[str, torch.Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunDamagedError(f"{path} cannot be read ({error}); resume from another checkpoint.") from error
    return tensors


def model_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The policy's tensors by name, tied ones once."""
    return dict(named_weights(model))


def set_model_tensors(model: torch.nn.Module, tensors: dict[str, torch.Tensor], *, source: Path) -> None:
    """Copy into the model in place; the same names and shapes are required."""
    own = model_tensors(model)
    if {name: tensor.shape for name, tensor in own.items()} != {name: t.shape for name, t in tensors.items()}:
        raise RunDamagedError(
            f"{source} holds the tensors of another model than this run's recipe describes; resume with its own recipe."
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def optimizer_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimizer's state, named `parameter|key`. Empty before the first step."""
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}|{key}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def set_optimizer_tensors(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]
) -> None:
    """The inverse of `optimizer_tensors`; replaces all state."""
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for label, value in tensors.items():
        name, _, key = label.rpartition("|")
        parameter = parameters[name]
        # Step counters stay where the optimizer made them: a fused step wants them beside the parameter.
        optimizer.state[parameter][key] = value.to(parameter.device, copy=True)
