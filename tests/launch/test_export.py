"""An export is whole or not there, and says what stands in its way."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from safetensors import SafetensorError

from launch.runs import new_run
from springtide.core.errors import RunDamagedError, StorageFullError, UsageError
from springtide.launch import export
from springtide.launch.export import export_run
from springtide.launch.train import sft
from springtide.telemetry.run_folder import RunFolder
from springtide.training import state


@pytest.fixture(scope="module")
def imitated(tmp_path_factory):
    recipe, folder = new_run(tmp_path_factory.mktemp("runs"), "warm_start.steps=1")
    sft(recipe=recipe, folder=folder)
    return folder


@pytest.fixture
def folder(imitated, tmp_path):
    return RunFolder.open(shutil.copytree(imitated.path, tmp_path / "run"))


def test_a_run_without_a_sound_checkpoint_says_which_kind_of_without_and_makes_nothing(folder, tmp_path):
    (folder.checkpoint(0) / state.MODEL).write_bytes(b"scratched")
    with pytest.raises(RunDamagedError, match=r"none of its checkpoints \(0\) is sound; restore one from a copy"):
        export_run(folder, tmp_path / "model")
    with pytest.raises(RunDamagedError, match="use the checkpoint of another step"):
        export_run(folder, tmp_path / "model", step=0)
    shutil.rmtree(folder.checkpoint(0))
    with pytest.raises(UsageError, match="has no checkpoint yet; resume it until it has written one"):
        export_run(folder, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        SafetensorError("Error while serializing: IoError(Os { code: 28, message: No space, os error 28 })"),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
    ],
)
def test_a_full_disk_leaves_nothing_half_written(folder, tmp_path, monkeypatch, error, exists):
    def full(model, tokenizer, target):
        (target / "config.json").write_text("{}")
        raise error

    target = tmp_path / "deep" / "model"
    if exists:
        target.mkdir(parents=True)
    monkeypatch.setattr(export, "export", full)
    with pytest.raises(StorageFullError, match="free some space"):
        export_run(folder, target)
    assert not target.exists() or list(target.iterdir()) == []
    assert [path.name for path in target.parent.iterdir()] == (["model"] if exists else [])
    monkeypatch.undo()
    export_run(folder, target)
    assert (target / "model.safetensors").is_file()


def test_a_target_that_cannot_be_written_is_one_sentence_with_a_remedy(folder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be made \(Not a directory\); name another"):
        export_run(folder, tmp_path / "file" / "model")


def test_an_empty_folder_stays_the_one_that_somebody_stands_in(folder, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    export_run(folder, Path())
    assert Path("model.safetensors").is_file()
    with pytest.raises(UsageError, match="not empty"):
        export_run(folder, Path())
