"""From a run's checkpoint to a folder that `transformers` loads."""

import errno
import os
import re
import shutil
from pathlib import Path

from safetensors import SafetensorError

from springtide.core.errors import RunDamagedError, StorageFullError, UsageError
from springtide.launch.model_folder import empty_model, open_tokenizer
from springtide.policy.model import export
from springtide.telemetry.run_folder import RunFolder
from springtide.training.checkpoint import Checkpoint, CheckpointStore
from springtide.training.config import CheckpointConfig
from springtide.training.state import load_policy


def export_run(folder: RunFolder, target: Path, *, step: int | None = None) -> int:
    """Write the policy of checkpoint `step`, by default the newest sound one, to `target`; returns the step.

    `target` must not exist or be empty. It gets all files or none: they are written beside it first.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"The folder {target} is not empty; name one that is, or a new one.")
    found = _checkpoint(folder, step)
    model, tokenizer = empty_model(folder.model), open_tokenizer(folder.model)
    load_policy(model, found.path)
    place = target.resolve()
    unfinished = place.with_name(f".{place.name}.unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        export(model, tokenizer, unfinished)
        _put(unfinished, place)
    except (OSError, SafetensorError) as error:
        raise _not_written(target, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return found.step


def _checkpoint(folder: RunFolder, step: int | None) -> Checkpoint:
    store = CheckpointStore(folder.checkpoints, CheckpointConfig())
    if step is not None:
        return store.at(step)
    found = store.latest_valid()
    if found is not None:
        return found
    steps = ", ".join(map(str, store.steps()))
    if not steps:
        raise UsageError(f"Run {folder.id} has no checkpoint yet; resume it until it has written one.")
    raise RunDamagedError(f"Run {folder.id}: none of its checkpoints ({steps}) is sound; restore one from a copy.")


def _put(unfinished: Path, target: Path) -> None:
    """A folder that is there stays the same one: somebody may stand in it, or have mounted it."""
    if not target.exists():
        os.replace(unfinished, target)
        return
    moved: list[Path] = []
    try:
        for path in sorted(unfinished.iterdir()):
            moved.append(target / path.name)
            shutil.move(path, target / path.name)
    except BaseException:
        for path in moved:
            path.unlink(missing_ok=True)
        raise


def _not_written(target: Path, error: OSError | SafetensorError) -> Exception:
    # safetensors reports the operating system's errors as text only.
    number = re.search(r"os error (\d+)", str(error))
    code = error.errno if isinstance(error, OSError) else int(number[1]) if number else errno.EIO
    if code in (errno.ENOSPC, errno.EDQUOT):
        return StorageFullError(f"The disk is full: the model does not fit beside {target}; free some space there.")
    why = os.strerror(code) if code is not None else str(error)
    return UsageError(
        f"The folder {target} cannot be made ({why}); name another, or give yourself the permission to write there."
    )
