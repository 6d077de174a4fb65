"""Endless streams of tasks by (purpose, index), and which of them a run may learn from.

A task's seed is a hash of (environment, run seed, stream, index) whose lowest bit is the split, so no held-out seed can
ever equal one that training or a demonstration uses, whatever the run.
"""

import hashlib
from enum import StrEnum
from typing import Any

from springtide.core.task import Split, Task


class Stream(StrEnum):
    TRAIN = "train"
    EVALUATE = "evaluate"
    """Held out: never trained on, never demonstrated."""
    DEMONSTRATE = "demonstrate"
    """Training tasks too, apart from those that RL samples."""


def task_seed(*, environment: str, run_seed: int, stream: Stream, index: int) -> int:
    """A non-negative seed below 2**63."""
    key = f"{environment}\0{run_seed}\0{stream}\0{index}".encode()
    number = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 2
    return number << 1 | (stream is Stream.EVALUATE)


def held_out(seed: int) -> bool:
    """Whether `seed` belongs to a held-out task."""
    return bool(seed & 1)


def make_task(
    *, environment: str, run_seed: int, stream: Stream, index: int, data: dict[str, Any] | None = None
) -> Task:
    """Task number `index` of `stream`; pure."""
    seed = task_seed(environment=environment, run_seed=run_seed, stream=stream, index=index)
    return Task(
        id=f"{environment}/{stream}/{index}",
        split=Split.HELD_OUT if held_out(seed) else Split.TRAIN,
        index=index,
        seed=seed,
        data=data or {},
    )
