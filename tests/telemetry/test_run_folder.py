import errno
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from springtide.core.errors import RunDamagedError, StorageFullError, UsageError
from springtide.telemetry import run_folder
from springtide.telemetry.run_folder import Parent, RunFolder, list_runs

NOON = datetime(2030, 5, 1, 12, 0, 0)


def create(root, **arguments):
    return RunFolder.create(**{"name": "demo", "recipe_text": 'name = "demo"\n', "root": root, **arguments})


def test_a_run_has_a_dated_folder_its_recipe_and_its_versions(tmp_path):
    folder = create(tmp_path, created=NOON)
    assert folder.path == tmp_path / "demo-20300501-120000"
    assert folder.recipe.read_text() == 'name = "demo"\n'
    document = json.loads((folder.path / "run.json").read_text())
    assert document["id"] == folder.id == "demo-20300501-120000"
    assert (
        document["versions"]["python"] == f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    )
    assert datetime.fromisoformat(document["created"]).timestamp() == NOON.timestamp()


def test_runs_of_the_same_second_get_a_number(tmp_path):
    ids = [create(tmp_path, created=NOON).id for _ in range(3)]
    assert ids == ["demo-20300501-120000", "demo-20300501-120000-2", "demo-20300501-120000-3"]


def test_a_run_is_found_by_folder_and_by_id(tmp_path):
    folder = create(tmp_path, parent=Parent("older", 40))
    for reference in (folder.path, str(folder.path), folder.id):
        assert RunFolder.open(reference, root=tmp_path).info == folder.info
    assert folder.info.parent == Parent("older", 40)


def test_what_is_learned_later_is_recorded(tmp_path):
    folder = create(tmp_path)
    folder.record(sandbox_level="namespaces")
    assert RunFolder.open(folder.path).info.sandbox_level == "namespaces"


def test_a_chosen_folder_must_be_free(tmp_path):
    chosen = tmp_path / "deep" / "mine"
    folder = create(tmp_path, path=chosen)
    assert folder.id == "mine"
    with pytest.raises(UsageError, match=r"already holds a run.*--resume"):
        create(tmp_path, path=chosen)
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "thesis.tex").touch()
    with pytest.raises(UsageError, match="in use for something else"):
        create(tmp_path, path=tmp_path / "busy")
    with pytest.raises(UsageError, match="cannot be made"):
        create(tmp_path, path=tmp_path / "busy" / "thesis.tex" / "below")


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(*arguments, **keywords):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StorageFullError, match="disk is full"):
        create(tmp_path)


def test_an_unknown_run_gets_a_hint(tmp_path):
    with pytest.raises(UsageError, match="no run at all"):
        RunFolder.open("demo", root=tmp_path)
    newest = create(tmp_path).id
    with pytest.raises(UsageError, match=f"the newest is {newest}"):
        RunFolder.open("unrelated-words", root=tmp_path)
    with pytest.raises(UsageError, match=f"did you mean {newest}"):
        RunFolder.open(newest[:-1] + "x", root=tmp_path)
    with pytest.raises(UsageError, match=r"it has no run\.json"):
        RunFolder.open(tmp_path, root=tmp_path)


def test_a_damaged_run_json_is_said_so_and_does_not_hide_other_runs(tmp_path):
    folder = create(tmp_path)
    (folder.path / "run.json").write_text("{")
    with pytest.raises(RunDamagedError, match="cannot be read"):
        RunFolder.open(folder.path)
    other = create(tmp_path, name="other")
    assert list_runs(tmp_path)[0] == other.id


def test_runs_are_listed_newest_first(tmp_path):
    for day in (2, 1, 3):
        create(tmp_path, created=NOON.replace(day=day))
    assert [run[5:13] for run in list_runs(tmp_path)] == ["20300503", "20300502", "20300501"]


def test_only_complete_checkpoints_count(tmp_path):
    folder = create(tmp_path)
    for name in ("step-000010", "step-000002", "step-000020.tmp", "step-000030-broken"):
        (folder.checkpoints / name).mkdir()
    assert folder.checkpoint_steps() == [2, 10]
    assert folder.checkpoint(10) == folder.checkpoints / "step-000010"


def test_one_process_at_a_time_and_a_dead_one_holds_nothing(tmp_path):
    folder = create(tmp_path)
    code = (
        "import sys\nfrom springtide.telemetry.run_folder import RunFolder\n"
        "with RunFolder.open(sys.argv[1]).lock():\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    assert not folder.locked()
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        assert folder.locked()
        with pytest.raises(UsageError, match=f"trained by process {other.pid}"), folder.lock(patience=0.1):
            pass
        other.kill()
        other.wait()
    assert not folder.locked()
    with folder.lock():
        assert folder.locked()
    assert not folder.locked()


@pytest.fixture
def parent(tmp_path):
    folder = create(tmp_path / "runs")
    for path in (folder.model / "config.json", folder.checkpoint(4) / "weights", folder.checkpoint(4) / "part" / "one"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    return folder


def test_a_branch_has_its_parents_model_and_checkpoint(parent):
    branch = parent.branch(4, name="branch", recipe_text="")
    assert branch.info.parent == Parent(parent.id, 4)
    for folder in (branch, RunFolder.open(branch.path)):
        assert (folder.model / "config.json").read_text() == "config.json"
        assert (folder.checkpoint(4) / "part" / "one").read_text() == "one"
        assert {path.name for path in folder.path.iterdir()} == {"recipe.toml", "run.json", "model", "checkpoints"}
        assert folder.checkpoint_steps() == [4]


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), StorageFullError, "free some space"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), StorageFullError, "free some space"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES)), UsageError, r"\(Permission denied\).*permission"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
)
@pytest.mark.parametrize("fails", ["config.json", "weights"])
def test_a_branch_that_cannot_be_copied_leaves_nothing(parent, monkeypatch, error, raised, said, fails):
    copy = shutil.copy2

    def broken(source, target):
        copy(source, target)
        if source.name == fails:
            raise error

    monkeypatch.setattr(shutil, "copy2", broken)
    with pytest.raises(raised, match=said):
        parent.branch(4, name="branch", recipe_text="")
    assert [path.name for path in parent.path.parent.iterdir()] == [parent.id]


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_checkpoint_that_its_run_removes_while_it_is_copied_is_named(parent, monkeypatch, when):
    copy = shutil.copy2

    def retire():
        os.rename(parent.checkpoint(4), parent.checkpoints / ".scratch-retired")

    def removed(source, target):
        if when == "before" and source.name == "config.json":
            retire()
        if when == "while" and source.name == "weights":
            retire()
        copy(source, target)
        if when == "after" and source.name == "weights":
            retire()

    monkeypatch.setattr(shutil, "copy2", removed)
    with pytest.raises(UsageError, match=r"--from 4: .* removed that checkpoint while it was copied; branch from"):
        parent.branch(4, name="branch", recipe_text="")
    assert [path.name for path in parent.path.parent.iterdir()] == [parent.id]


def test_where_the_chats_are_is_remembered_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = create(tmp_path, chats=Path("chats.jsonl"))
    assert RunFolder.open(folder.path).info.chats == str(tmp_path / "chats.jsonl")
    assert create(tmp_path).info.chats == ""


def test_a_folder_that_cannot_be_completed_is_not_left_half_made(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_folder, "write_atomically", full)
    with pytest.raises(StorageFullError):
        RunFolder.create(name="x", recipe_text="", path=tmp_path / "mine")
    monkeypatch.undo()
    assert RunFolder.create(name="x", recipe_text="", path=tmp_path / "mine").recipe.exists()
