"""The runtime's view of the checkpoint store: positions as boundaries."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from springtide.core.errors import RunDamagedError
from springtide.scheduling.events import Boundary
from springtide.training.checkpoint import CheckpointStore


class RunCheckpoints:
    """Implements runtime.checkpoints.Checkpoints."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self.newest = -1
        """Step of the checkpoint that was last written or read."""

    def save(self, step: int, write: Callable[[Path], None], boundary: Boundary) -> None:
        self._store.save(step, write, msgspec.to_builtins(boundary))
        self.newest = step

    def restore(self, read: Callable[[Path], None], *, newest: int) -> Boundary:
        found = self._store.latest_valid(newest=newest)
        if found is None:
            later = self._store.latest_valid()
            if later is not None:
                raise RunDamagedError(
                    f"The journal beside {self._store.folder} ends at step {newest}, before checkpoint {later.step}: "
                    f"restore a newer journal, or branch with --from {later.step}."
                )
            raise RunDamagedError(
                f"No checkpoint in {self._store.folder} is sound; restore one from a copy or start a new run."
            )
        read(found.path)
        self.newest = found.step
        return msgspec.convert(found.position, Boundary)
