"""A mistake that shows only while a new run prepares, and a run that has begun all the same."""

import pytest

from springtide.cli.new_run import undone_by_mistakes
from springtide.core.errors import RunDamagedError, UnsafeSandboxError, UsageError
from springtide.telemetry.run_folder import Parent, RunFolder


def fail(folder, error):
    folder.checkpoints.joinpath("half").mkdir()
    (folder.path / "status.json").write_text("{}")
    with pytest.raises(type(error)), undone_by_mistakes(folder):
        raise error


@pytest.mark.parametrize("error", [UsageError("model.path"), UnsafeSandboxError("no box")])
def test_a_mistake_before_the_first_checkpoint_leaves_nothing(tmp_path, error):
    folder = RunFolder.create(name="new", recipe_text="", root=tmp_path / "runs")
    fail(folder, error)
    assert list((tmp_path / "runs").iterdir()) == []


def branch(root):
    folder = RunFolder.create(name="branch", recipe_text="", root=root / "runs", parent=Parent("older", 40))
    folder.checkpoint(40).mkdir()
    folder.metrics.touch()
    return folder


def test_a_branch_has_nothing_of_its_own_until_it_has_measured_something(tmp_path):
    fail(branch(tmp_path), UsageError("rollout.max_context"))
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("own", ["metric", "checkpoint"])
def test_a_branch_that_has_begun_stays(tmp_path, own):
    folder = branch(tmp_path)
    if own == "metric":
        folder.metrics.write_text("{}")
    else:
        folder.checkpoint(50).mkdir()
    fail(folder, UsageError("late"))
    assert RunFolder.open(folder.path).id == folder.id


@pytest.mark.parametrize(("error", "step"), [(UsageError("late"), 0), (RunDamagedError("journal"), None)])
def test_whatever_else_happens_the_run_stays(tmp_path, error, step):
    folder = RunFolder.create(name="new", recipe_text="", root=tmp_path)
    if step is not None:
        folder.checkpoint(step).mkdir()
    fail(folder, error)
    assert RunFolder.open(folder.path).id == folder.id
