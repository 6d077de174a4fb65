import json
from pathlib import Path

import pytest

from springtide.core.errors import UsageError
from springtide.recipe import load_recipe
from springtide.telemetry.run_folder import Parent, RunFolder
from springtide.training.checkpoint import CheckpointStore
from springtide.training.config import CheckpointConfig


@pytest.fixture
def finished(springtide, launches):
    """A run of the word game, with checkpoints at steps 0 and 10."""
    assert springtide("train", "word-game", "--run-folder", "runs/first").exit_code == 0
    folder = RunFolder.open("first")
    store = CheckpointStore(folder.checkpoints, CheckpointConfig())
    for step in (0, 10):
        store.save(step, lambda path, step=step: (path / "weights").write_text(str(step)), {"step": step})
    folder.model.mkdir()
    (folder.model / "config.json").write_text("{}")
    launches.calls.clear()
    return folder


def test_a_new_run_gets_a_dated_folder_with_its_resolved_recipe(springtide, launches):
    result = springtide("train", "word-game", "--set", "seed=3")
    assert result.exit_code == 0
    ((recipe, folder),) = launches.calls
    assert recipe.seed == 3
    assert folder.path.parent == Path("runs")
    assert folder.id.startswith("word-game-2")
    assert load_recipe(folder.recipe) == recipe


def test_the_end_shows_the_table_and_three_next_commands(springtide, launches):
    text = springtide("train", "word-game", "--run-folder", "mine").stdout
    assert "3 of 10" in text
    assert "8 of 10" in text
    assert "1 min 01 s, 123 trained tokens per second" in text
    for command in ("springtide show mine", "springtide train --resume mine", "springtide export mine"):
        assert command in text


def test_away_from_a_terminal_progress_is_plain_lines(springtide, launches):
    lines = springtide("train", "word-game").stdout.splitlines()
    assert any(line.startswith("training, train step 1 of 2 | reward 0.250") for line in lines)
    assert any("held-out success 0.500 @ step 2" in line for line in lines)


def test_json_is_the_only_thing_on_standard_output(springtide, launches):
    result = springtide("train", "word-game", "--run-folder", "mine", "--json")
    assert result.exit_code == 0
    (line,) = result.stdout.splitlines()
    document = json.loads(line)
    assert document == {
        "run": "mine",
        "seconds": 61.0,
        "before": {"k": 3, "n": 10, "invalid": 1},
        "after": {"k": 8, "n": 10, "invalid": 0},
        "goodput_tokens_per_s": 123.4,
    }
    assert "training, train step 1 of 2" in result.stderr


def test_a_wrong_recipe_makes_no_folder(springtide, launches, tmp_path):
    assert springtide("train", "word-game", "--set", "sede=3").exit_code == 2
    assert launches.calls == []
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(springtide, launches, finished):
    launches.error = KeyboardInterrupt()
    result = springtide("train", "word-game", "--run-folder", "mine")
    assert result.exit_code == 130
    assert "the warm start will begin again. Go on with: springtide train --resume mine" in result.stderr
    assert "nothing is lost" not in result.stderr
    result = springtide("train", "--resume", "first")
    assert result.exit_code == 130
    assert "nothing is lost. Go on with: springtide train --resume runs/first" in result.stderr


def test_a_branch_of_a_damaged_checkpoint_is_refused_before_anything_is_copied(springtide, launches, finished):
    (finished.checkpoint(10) / "weights").write_text("torn")
    result = springtide("train", "--resume", "first", "--from", "10")
    assert result.exit_code == 3
    assert "step-000010/weights is missing or is not what was written" in result.stderr
    assert launches.calls == []
    assert [path.name for path in finished.path.parent.iterdir()] == ["first"]


def test_a_mistake_that_shows_while_a_branch_prepares_leaves_no_branch(springtide, launches, finished):
    launches.error = UsageError("rollout.max_context 8 has no room.")
    assert springtide("train", "--resume", "first", "--from", "10", "--set", "seed=5").exit_code == 2
    assert [path.name for path in finished.path.parent.iterdir()] == ["first"]
    assert springtide("train", "--resume", "first").exit_code == 2
    assert finished.checkpoint_steps() == [0, 10], "a run that is resumed stays, whatever happens"


def test_a_path_is_printed_as_it_is(springtide, launches):
    folder = "a[b]c[/red]"
    text = springtide("train", "word-game", "--run-folder", folder).stdout
    assert f"Run {Path(folder).name} in {folder}\n" in text
    assert f"Report: {folder}/report.md" in text
    assert f"springtide export {folder} " in text


def test_a_failure_of_the_run_is_one_sentence(springtide, launches):
    launches.error = UsageError("model.path: there is no folder x.")
    result = springtide("train", "word-game", "--run-folder", "mine")
    assert result.exit_code == 2
    assert "springtide: model.path: there is no folder x." in result.stderr


def test_resume_goes_on_in_the_same_folder_with_its_own_recipe(springtide, launches, finished):
    assert springtide("train", "--resume", "first").exit_code == 0
    ((recipe, folder),) = launches.calls
    assert folder.path == finished.path
    assert recipe == load_recipe("word-game")


def test_from_branches_a_new_run_with_its_parent_recorded(springtide, launches, finished):
    assert springtide("train", "--resume", "first", "--from", "10", "--set", "seed=5").exit_code == 0
    ((recipe, folder),) = launches.calls
    assert folder.path.parent == finished.path.parent
    assert folder.path != finished.path
    assert RunFolder.open(folder.path).info.parent == Parent("first", 10)
    assert recipe.seed == 5
    assert folder.checkpoint_steps() == [10]
    assert (folder.checkpoint(10) / "weights").read_text() == "10"
    assert (folder.model / "config.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Name a recipe"),
        (("--from", "3"), "needs --resume"),
        (("word-game", "--resume", "first"), "Leave out the recipe"),
        (("--resume", "first", "--set", "seed=1"), "--set does not go with a resumed run"),
        (("--resume", "first", "--run-folder", "x"), "--run-folder does not go with a resumed run"),
        (("--resume", "first", "--from", "7"), "has no checkpoint at that step; it has 0, 10"),
        (("--resume", "first", "--from", "10", "--set", "scheduling.steps=5"), "--from 10 is beyond"),
        (("--resume", "frist"), "did you mean first?"),
        (("word-game", "--run-folder", "runs/first"), "already holds a run"),
    ],
)
def test_options_that_do_not_go_together_are_refused(springtide, launches, finished, arguments, said):
    result = springtide("train", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert launches.calls == []


def test_without_the_extra_it_says_what_to_install_and_makes_nothing(springtide, launches, monkeypatch, tmp_path):
    monkeypatch.setattr("springtide.cli.extras.find_spec", lambda name: None if name == "torch" else object())
    result = springtide("train", "word-game")
    assert result.exit_code == 2
    assert "pip install 'springtide[train]'" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_log_messages_do_not_break_the_json_line(springtide, launches):
    launches.warning = "Metrics are no longer written."
    result = springtide("train", "word-game", "--json")
    assert len(result.stdout.splitlines()) == 1
    assert "Metrics are no longer written.\n" in result.stderr
