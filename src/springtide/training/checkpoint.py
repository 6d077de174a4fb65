"""Checkpoints that are either whole or not there.

A checkpoint is written into a folder of another name, flushed to the disk and renamed; it carries a hash of every file
and of itself. Finding one verifies all of that, once: a damaged checkpoint is passed over in favour of an older one,
and named, and who reads the files of one that was found need not look again. What retention removes is renamed first,
so that a half-removed checkpoint is never taken for a damaged one.

No torch here: who writes the files is handed in.
"""

import errno
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide.core.errors import RunDamagedError, StorageFullError, UsageError
from springtide.training.config import CheckpointConfig
from springtide.training.manifest import damaged_files, describe_files, read_sealed, write_sealed

log = logging.getLogger(__name__)

MANIFEST = "checkpoint.json"
_PREFIX = "step-"
_SCRATCH = ".scratch-"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint. `position` is what its writer said about where the run stands."""

    step: int
    path: Path
    position: dict[str, Any]


class CheckpointStore:
    """The checkpoints of one run, in `folder`. One writer."""

    def __init__(self, folder: Path, config: CheckpointConfig) -> None:
        self.folder = folder
        self._config = config

    def save(self, step: int, write: Callable[[Path], None], position: Mapping[str, Any]) -> Path:
        """Have `write` fill an empty folder, make it checkpoint `step`, and apply retention.

        StorageFullError when the disk is full; then, as with any error of `write`, nothing of the attempt stays and
        all other checkpoints are intact. A checkpoint of the same step is replaced.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clear_scratch()
        scratch = self.folder / f"{_SCRATCH}{step:06d}"
        try:
            scratch.mkdir()
            write(scratch)
            files = describe_files(scratch)
            write_sealed(scratch / MANIFEST, {"step": step, "position": dict(position), "files": files})
            _flush_tree(scratch)
            self._retire(step)
            os.rename(scratch, self._path(step))
            _flush(self.folder)
        except OSError as error:
            shutil.rmtree(scratch, ignore_errors=True)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageFullError(
                    f"The disk is full: checkpoint {step} could not be written to {self.folder}; "
                    "free space there and resume the run."
                ) from error
            raise
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        self._retain(step)
        return self._path(step)

    def steps(self) -> list[int]:
        """Steps with a checkpoint, sound or not, ascending."""
        names = [path.name.removeprefix(_PREFIX) for path in self.folder.glob(f"{_PREFIX}*")]
        return sorted(int(name) for name in names if name.isdecimal())

    def at(self, step: int) -> Checkpoint:
        """The checkpoint of step `step`. UsageError if there is none, RunDamagedError if it is not sound."""
        if step not in self.steps():
            present = ", ".join(map(str, self.steps())) or "none"
            raise UsageError(f"There is no checkpoint of step {step} in {self.folder}; there are: {present}.")
        found = self._verify(step)
        if isinstance(found, str):
            raise RunDamagedError(
                f"{self._path(step) / found} is missing or is not what was written; use the checkpoint of another step."
            )
        return found

    def latest_valid(self, *, newest: int | None = None) -> Checkpoint | None:
        """The newest sound checkpoint, not after step `newest` if given; None if there is none.

        Damaged ones on the way are logged.
        """
        for step in reversed(self.steps()):
            if newest is not None and step > newest:
                continue
            found = self._verify(step)
            if isinstance(found, Checkpoint):
                return found
            log.warning("Checkpoint %s is damaged (%s); looking for an older one.", self._path(step), found)
        return None

    def _verify(self, step: int) -> Checkpoint | str:
        """The checkpoint, or the name of its first file that is not what was written."""
        path = self._path(step)
        try:
            manifest = read_sealed(path / MANIFEST)
        except (OSError, ValueError):
            return MANIFEST
        damaged = damaged_files(path, manifest["files"])
        return damaged[0] if damaged else Checkpoint(step=step, path=path, position=manifest["position"])

    def _retain(self, newest: int) -> None:
        """Keep the newest `keep` up to step `newest`, and the multiples of `keep_every`, 0 being one.

        Later ones are damaged, or the run would not have gone back behind them: they do not count, and are replaced
        when the run comes to them.
        """
        steps = [step for step in self.steps() if step <= newest]
        kept = set(steps[-self._config.keep :])
        for step in steps:
            if step not in kept and step % self._config.keep_every:
                self._retire(step)
        self._clear_scratch()

    def _retire(self, step: int) -> None:
        if self._path(step).exists():
            os.rename(self._path(step), self.folder / f"{_SCRATCH}retired-{step:06d}")

    def _clear_scratch(self) -> None:
        for path in self.folder.glob(f"{_SCRATCH}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _path(self, step: int) -> Path:
        return self.folder / f"{_PREFIX}{step:06d}"


def _flush_tree(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        _flush(path)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
