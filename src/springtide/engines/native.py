"""Attention in C, where the host has a C compiler: compiled in a fraction of a second when first needed.

PyTorch's operators need masks and rows of equal length. This kernel reads exactly each row's own KV, whatever the row's
neighbours are. Where it cannot be compiled or loaded, or off the CPU, or below float32, the engine uses PyTorch's
operators instead.
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

from springtide.engines.group import AttentionOptions
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


NO_WINDOW = 1 << 62


class AttentionKernel:
    """The kernel for one layer shape; `attend` is safe to call from several threads."""

    def __init__(self, function: Kernel, task_tokens: int, sharing: int, value_width: int) -> None:
        self.task_tokens = task_tokens
        """New tokens of a row that one task takes, at most."""
        self._function = function
        self._sharing = sharing
        self._value_width = value_width

    def attend(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
        tasks: tuple[torch.Tensor, torch.Tensor],
        options: AttentionOptions,
    ) -> torch.Tensor:
        """`query` [tokens, heads, width] over flat planes gives [tokens, heads, value width].

        `rows` are offset and length of the block, start, count and first packed index of the new tokens, [rows];
        `tasks` row and first new token, [tasks], in pieces of `task_tokens`; all int64.
        """
        query = query.contiguous()
        tokens, heads, _ = query.shape
        out = query.new_empty(tokens, heads, self._value_width)
        pointers = [tensor.data_ptr() for tensor in (query, keys, values, out, *rows, *tasks)]
        window = NO_WINDOW if options.window is None else options.window
        self._function(*pointers, len(tasks[0]), heads // self._sharing, window, options.scale)
        return out


@cache
def attention_kernel(shape: LayerShape, heads: int) -> AttentionKernel | None:
    """The kernel for `heads` query heads over a layer of `shape`, or None: without a compiler, or as the log says."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    sharing = heads // shape.key.heads
    defines = [f"-DSHARING={sharing}", f"-DKEY={shape.key.width}", f"-DVALUE={shape.value.width}"]
    try:
        function, task_tokens = _compiled(compiler, defines)
    except (OSError, subprocess.SubprocessError) as error:
        log.info("Attention runs on PyTorch's operators: its kernel cannot be compiled and loaded (%s).", error)
        return None
    return AttentionKernel(function, task_tokens, sharing, shape.value.width)


def _compiled(compiler: str, defines: list[str]) -> tuple[Kernel, int]:
    """OSError also where the folder for temporary files is full or forbids its files to be executed."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "attention.so"
        source = str(files("springtide.engines") / "attention.c")
        for tuning in TUNINGS:
            command = [compiler, *FLAGS, *tuning, *defines, source, "-o", str(library), "-lm"]
            done = subprocess.run(command, capture_output=True, check=False, timeout=COMPILER_SECONDS)
            if done.returncode == 0:
                break
        done.check_returncode()
        loaded = ctypes.CDLL(str(library))
    loaded.task_tokens.restype = ctypes.c_int64
    loaded.attend.argtypes = [ctypes.c_void_p] * 11 + [ctypes.c_int64] * 3 + [ctypes.c_float]
    loaded.attend.restype = None
    return loaded.attend, loaded.task_tokens()
