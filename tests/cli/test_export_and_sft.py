import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from springtide.core.errors import UsageError
from springtide.recipe import load_recipe
from springtide.telemetry.run_folder import RunFolder


@pytest.fixture
def calls(monkeypatch):
    """Stand-ins for the composition that record what they are asked for."""
    recorded = []

    def sft(*, recipe, folder, chats, view):
        recorded.append((recipe, folder, chats))
        if recorded[0] == "interrupt":
            raise KeyboardInterrupt

    def export_run(folder, target, *, step=None):
        recorded.append((folder.id, target, step))
        if step == 99:
            raise UsageError("There is no checkpoint of step 99.")
        return 20 if step is None else step

    training, exporting = ModuleType("springtide.launch.train"), ModuleType("springtide.launch.export")
    training.sft, exporting.export_run = sft, export_run
    monkeypatch.setitem(sys.modules, "springtide.launch.train", training)
    monkeypatch.setitem(sys.modules, "springtide.launch.export", exporting)
    return recorded


def test_sft_trains_in_a_new_run_and_says_how_to_go_on(springtide, calls):
    chat = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
    Path("chats.jsonl").write_text(json.dumps(chat) + "\n")
    result = springtide("sft", "word-game", "--data", "chats.jsonl", "--run-folder", "mine", "--set", "seed=4")
    assert result.exit_code == 0
    ((recipe, folder, chats),) = calls
    assert (recipe.seed, folder.id) == (4, "mine")
    assert [message.content for message in chats[0].messages] == ["hi", "hello"]
    assert RunFolder.open(folder.path).info.chats == str(Path("chats.jsonl").resolve())
    assert load_recipe(folder.recipe) == recipe
    assert "springtide train --resume mine" in result.stdout


def test_an_interrupted_sft_says_the_whole_command_that_starts_it_again(springtide, calls):
    chat = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
    Path("my chats.jsonl").write_text(json.dumps(chat) + "\n")
    calls.append("interrupt")
    result = springtide(
        "sft", "word-game", "--data", "my chats.jsonl", "--set", "seed=4", "--set", "warm_start.steps=9"
    )
    assert result.exit_code == 130
    again = "springtide sft word-game --set seed=4 --set warm_start.steps=9 --data 'my chats.jsonl'"
    assert f"start again with: {again}\n" in result.stderr


def test_paths_are_printed_as_they_are(springtide, calls):
    odd = "a[b]c[/red]"
    text = springtide("sft", "word-game", "--run-folder", odd).stdout
    assert f"springtide export {odd} DIR" in text
    assert f"springtide train --resume {odd}" in text
    text = springtide("export", odd, odd + "2").stdout
    assert f'is in {odd}2: AutoModelForCausalLM.from_pretrained("{odd}2")' in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--data", "gone.jsonl"), "--data gone.jsonl"), (("--set", "warm_start.steps=0"), "leaves nothing to train")],
)
def test_sft_refuses_what_cannot_train_before_it_makes_a_folder(springtide, calls, tmp_path, arguments, said):
    result = springtide("sft", "word-game", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert calls == []
    assert list(tmp_path.iterdir()) == []


def test_export_says_which_step_it_wrote_and_how_to_load_it(springtide, calls):
    folder = RunFolder.create(name="demo", recipe_text="")
    result = springtide("export", folder.id, "out")
    assert calls == [(folder.id, Path("out"), None)]
    assert "after step 20 is in out" in result.stdout
    assert 'from_pretrained("out")' in result.stdout
    assert springtide("export", folder.id, "out", "--step", "10").exit_code == 0
    assert calls[-1][2] == 10


def test_export_of_an_unknown_step_is_one_sentence(springtide, calls):
    folder = RunFolder.create(name="demo", recipe_text="")
    result = springtide("export", folder.id, "out", "--step", "99")
    assert result.exit_code == 2
    assert "no checkpoint of step 99" in result.stderr
