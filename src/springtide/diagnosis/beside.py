"""What lies beside a log and belongs to its run: checkpoints by the names of their folders or a list of them, and the
configuration of the run.

The configuration is taken from files with the names that trainers give it; that of a model is not one. Nothing is
executed or unpickled.
"""

import os
from pathlib import Path
from typing import Any

import msgspec

from springtide.diagnosis.find import checkpoint_step, run_folder
from springtide.diagnosis.log import Log
from springtide.diagnosis.readers.jsonl import json_object
from springtide.diagnosis.readers.values import flat, from_json, step_of
from springtide.diagnosis.readers.yaml_text import settings_of

FOLDERS = ("", "checkpoints", "ckpt", "ckpts")
LISTS = ("checkpoints.jsonl",)
CONFIGS = (
    "config.json",
    "training_args.json",
    "args.json",
    "params.json",
    "hparams.json",
    "config.yaml",
    "config.yml",
    "training_args.yaml",
    "hparams.yaml",
    "params.yaml",
    ".hydra/config.yaml",
)
OF_A_MODEL = ("architectures", "model_type")
LARGEST = 1 << 22
"""Bytes of a file beyond which it is no configuration."""


def with_neighbours(log: Log) -> Log:
    """The log with the steps of checkpoints that are on disk, and with settings that it does not have itself."""
    folder = run_folder(log.source)
    found = {step for name in FOLDERS for step in _checkpoints(folder / name)}
    found |= {step for name in LISTS for step in _listed(folder / name)}
    return msgspec.structs.replace(
        log,
        checkpoints=tuple(sorted(found | set(log.checkpoints))),
        settings={**_settings(folder), **log.settings},
    )


def _checkpoints(folder: Path) -> list[int]:
    try:
        with os.scandir(folder) as entries:
            names = [each.name for each in entries if each.is_dir()]
    except OSError:
        return []
    return [step for name in names if (step := checkpoint_step(Path(name))) is not None]


def _listed(path: Path) -> list[int]:
    """tinker-cookbook's list; its `batch` is the step."""
    try:
        rows = [json_object(line) for line in path.read_bytes().split(b"\n")] if path.is_file() else []
    except OSError:
        return []
    steps = [step_of(row.get("batch", row.get("step"))) for row in rows if row is not None]
    return [step for step in steps if step is not None]


def _settings(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in reversed(CONFIGS):
        path = folder / name
        try:
            if path.is_file() and path.stat().st_size <= LARGEST:
                found |= _config(path)
        except OSError:
            continue
    return found


def _config(path: Path) -> dict[str, Any]:
    if path.suffix == ".json":
        try:
            content = from_json(path.read_bytes())
        except ValueError:
            return {}
        if not isinstance(content, dict) or any(name in content for name in OF_A_MODEL):
            return {}
        return flat(content)
    return settings_of(path.read_text(encoding="utf-8", errors="replace"))
