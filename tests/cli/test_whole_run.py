"""The commands one after another on a real, very short run: what one leaves is what the next one takes."""

import json

import pytest

from springtide.recipe import load_recipe
from springtide.telemetry.run_folder import RunFolder

SHORT = ["warm_start.steps=4", "warm_start.demonstrations=64", "scheduling.steps=2", "scheduling.groups_per_step=2"]
SHORT += ["evaluation.tasks=4", "evaluation.every=0", "checkpoint.every=1"]


@pytest.fixture
def run(springtide):
    options = [part for setting in SHORT for part in ("--set", setting)]
    result = springtide("train", "word-game", *options, "--run-folder", "runs/short", "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_train_then_look_resume_branch_and_export(springtide, run):
    assert (run["run"], run["before"]["n"], run["after"]["n"]) == ("short", 4, 4)
    folder = RunFolder.open("short")
    for path in (folder.recipe, folder.journal, folder.metrics, folder.status, folder.result, folder.report):
        assert path.exists(), path.name
    assert folder.curve.exists()
    assert load_recipe(folder.recipe).scheduling.steps == 2

    status = json.loads(springtide("status", "short", "--json").stdout)
    assert (status["phase"], status["step"], status["running"]) == ("finished", 2, False)

    listed = json.loads(springtide("show", "short", "--json").stdout)
    assert listed["ends"] == {"trained": 32}
    shown = springtide("show", "short", "--trajectory", listed["newest"][0]["id"]).stdout
    assert "say the right word" in shown
    assert "sampled tokens" in shown

    again = springtide("train", "--resume", "short", "--json")
    assert again.exit_code == 0, again.stderr
    resumed = json.loads(again.stdout.splitlines()[-1])
    assert (resumed["before"], resumed["after"]) == (run["before"], run["after"])

    branch = springtide("train", "--resume", "short", "--from", "1", "--run-folder", "runs/branch", "--json")
    assert branch.exit_code == 0, branch.stderr
    assert RunFolder.open("branch").info.parent.step == 1

    assert springtide("export", "branch", "model").exit_code == 0
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained("model")
    assert model.config.hidden_size == load_recipe(folder.recipe).model.hidden
