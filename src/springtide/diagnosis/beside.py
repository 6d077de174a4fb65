"""What lies beside a log and belongs to its run: checkpoints by the names of their folders."""

import os
from pathlib import Path

import msgspec

from springtide.diagnosis.find import checkpoint_step, run_folder
from springtide.diagnosis.log import Log

FOLDERS = ("", "checkpoints", "ckpt", "ckpts")


def with_neighbours(log: Log) -> Log:
    """The log with the steps of checkpoints that are on disk."""
    folder = run_folder(log.source)
    found = {step for name in FOLDERS for step in _checkpoints(folder / name)}
    return msgspec.structs.replace(log, checkpoints=tuple(sorted(found | set(log.checkpoints)))) if found else log


def _checkpoints(folder: Path) -> list[int]:
    try:
        with os.scandir(folder) as entries:
            names = [each.name for each in entries if each.is_dir()]
    except OSError:
        return []
    return [step for name in names if (step := checkpoint_step(Path(name))) is not None]
