"""Decode attention in C, where the host has a C compiler: compiled in a fraction of a second when first needed.

Decoding reads all keys and values for a single query per row. PyTorch's batched products need masks and read every row
of a group up to the longest. This kernel reads exactly each row's own KV. Where it cannot be compiled or loaded, or off
the CPU, or below float32, the engine uses PyTorch's operators instead.
"""

import ctypes
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path

import torch

from springtide.engines.storage import LayerShape

log = logging.getLogger(__name__)

Kernel = Callable[..., None]

FLAGS = [
    "-O3",
    "-std=gnu11",
    "-shared",
    "-fPIC",
    # What lets loops over floats vectorise; NaN and infinity keep their meaning.
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-fassociative-math",
]
TUNINGS: tuple[list[str], ...] = (["-march=native", "-fopenmp"], ["-march=native"], [])
"""Tried in this order: not every compiler knows OpenMP or its own machine."""

COMPILER_SECONDS = 60
"""How long a compiler may take, a hundred times what it should: some wait for a licence or a remote cache."""


class DecodeKernel:
    """The kernel for one layer shape; `attend` is safe to call from several threads."""

    def __init__(self, function: Kernel, sharing: int, value_width: int) -> None:
        self._function = function
        self._sharing = sharing
        self._value_width = value_width

    def attend(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        places: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
        scale: float,
    ) -> torch.Tensor:
        """`query` [rows, heads, width] over flat planes; `places` are offset, length, first and last [rows], int64."""
        query = query.contiguous()
        rows, heads, _ = query.shape
        out = query.new_empty(rows, heads, self._value_width)
        pointers = [tensor.data_ptr() for tensor in (query, keys, values, out, *places)]
        self._function(*pointers, rows, heads // self._sharing, scale)
        return out


@cache
def decode_kernel(shape: LayerShape, heads: int) -> DecodeKernel | None:
    """The kernel for `heads` query heads over a layer of `shape`, or None: without a compiler, or as the log says."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    sharing = heads // shape.key.heads
    defines = [f"-DSHARING={sharing}", f"-DKEY={shape.key.width}", f"-DVALUE={shape.value.width}"]
    try:
        function = _compiled(compiler, defines)
    except (OSError, subprocess.SubprocessError) as error:
        log.info("Decode attention runs on PyTorch's operators: its kernel cannot be compiled and loaded (%s).", error)
        return None
    return DecodeKernel(function, sharing, shape.value.width)


def _compiled(compiler: str, defines: list[str]) -> Kernel:
    """OSError also where the folder for temporary files is full or forbids its files to be executed."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "decode.so"
        source = str(files("springtide.engines") / "decode.c")
        for tuning in TUNINGS:
            command = [compiler, *FLAGS, *tuning, *defines, source, "-o", str(library), "-lm"]
            done = subprocess.run(command, capture_output=True, check=False, timeout=COMPILER_SECONDS)
            if done.returncode == 0:
                break
        done.check_returncode()
        function = ctypes.CDLL(str(library)).decode
    function.argtypes = [ctypes.c_void_p] * 8 + [ctypes.c_int64] * 2 + [ctypes.c_float]
    function.restype = None
    kernel: Kernel = function
    return kernel
