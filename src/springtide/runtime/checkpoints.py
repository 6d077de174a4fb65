"""What the runtime needs of a checkpoint store; training/checkpoint.py is the real one."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from springtide.scheduling.events import Boundary


class Checkpoints(Protocol):
    """Atomic, verified, retained by policy."""

    def save(self, step: int, write: Callable[[Path], None], boundary: Boundary) -> None:
        """Have `write` fill a folder and make it checkpoint `step`. StorageFullError leaves the older ones intact."""
        ...

    def restore(self, read: Callable[[Path], None], *, newest: int) -> Boundary:
        """Have `read` load the newest sound checkpoint not after step `newest`. RunDamagedError if there is none."""
        ...
