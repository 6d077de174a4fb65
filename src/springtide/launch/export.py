"""From a run's checkpoint to a folder that `transformers` loads."""

from pathlib import Path

from springtide.core.errors import RunDamagedError, UsageError
from springtide.launch.model_folder import empty_model, open_tokenizer
from springtide.policy.model import export
from springtide.telemetry.run_folder import RunFolder
from springtide.training.checkpoint import Checkpoint, CheckpointStore
from springtide.training.config import CheckpointConfig
from springtide.training.state import load_policy


def export_run(folder: RunFolder, target: Path, *, step: int | None = None) -> int:
    """Write the policy of checkpoint `step`, by default the newest sound one, to `target`; returns the step.

    `target` must not exist or be empty.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"The folder {target} is not empty; name one that is, or a new one.")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {target} cannot be made: {error.strerror or error}.") from error
    found = _checkpoint(folder, step)
    model = empty_model(folder.model)
    load_policy(model, found.path)
    export(model, open_tokenizer(folder.model), target)
    return found.step


def _checkpoint(folder: RunFolder, step: int | None) -> Checkpoint:
    store = CheckpointStore(folder.checkpoints, CheckpointConfig())
    if step is not None:
        return store.at(step)
    found = store.latest_valid()
    if found is None:
        raise RunDamagedError(f"Run {folder.id} has no sound checkpoint to export; resume it until it has written one.")
    return found
