"""Whole runs, small ones, through the composition."""

import errno
import shutil
import sqlite3

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from launch.runs import new_run, same, weights
from springtide.core.errors import RunDamagedError, StorageFullError, UsageError
from springtide.evaluation.result import history
from springtide.launch.export import export_run
from springtide.launch.train import sft, train
from springtide.recipe import dump_recipe, load_recipe
from springtide.runtime.journal import open_journal_reader
from springtide.telemetry.jsonl import read_metrics
from springtide.telemetry.run_folder import RunFolder
from springtide.telemetry.status import read_status
from springtide.telemetry.verdicts import newest_verdict
from springtide.training import state
from springtide.training.checkpoint import CheckpointStore


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    recipe, folder = new_run(tmp_path_factory.mktemp("runs"))
    return recipe, folder, train(recipe=recipe, folder=folder)


def test_a_run_leaves_what_the_documentation_promises(finished):
    _, folder, result = finished
    assert result.before.n == result.after.n == 4
    assert result.goodput_tokens_per_s > 0
    assert folder.checkpoint_steps() == [0, 2, 3]
    for path in (folder.recipe, folder.journal, folder.metrics, folder.status, folder.result, folder.report):
        assert path.is_file(), path
    assert read_status(folder.status).phase == "finished"


def test_a_run_diagnoses_itself_unless_the_recipe_says_not_to_and_learns_the_same(finished, tmp_path):
    _, folder, _ = finished
    assert newest_verdict(folder.diagnosis).step == 3
    assert "## Diagnosis" in folder.report.read_text()
    recipe, silent = new_run(tmp_path, "diagnosis.every=0")
    train(recipe=recipe, folder=silent)
    assert not silent.diagnosis.exists()
    assert same(weights(folder, 3), weights(silent, 3))


def test_the_same_recipe_gives_the_same_weights(finished, tmp_path):
    recipe, folder, _ = finished
    again = RunFolder.create(name="again", recipe_text=dump_recipe(recipe), root=tmp_path)
    train(recipe=load_recipe(again.recipe), folder=again)
    assert same(weights(folder, 3), weights(again, 3))
    assert not same(weights(folder, 3), weights(folder, 0)), "the run did train"


def test_resuming_a_finished_run_changes_nothing_and_gives_its_result(finished, tmp_path):
    recipe, folder, result = finished
    copy = RunFolder.open(shutil.copytree(folder.path, tmp_path / "copy"))
    resumed = train(recipe=recipe, folder=copy)
    assert (resumed.before, resumed.after) == (result.before, result.after)
    assert same(weights(folder, 3), weights(copy, 3))


def test_a_lost_checkpoint_is_trained_again_from_the_journal(finished, tmp_path):
    recipe, folder, _ = finished
    copy = RunFolder.open(shutil.copytree(folder.path, tmp_path / "copy"))
    shutil.rmtree(copy.checkpoint(3))
    (copy.checkpoint(2) / state.MODEL).write_bytes(b"scratched")
    train(recipe=recipe, folder=copy)
    reader = open_journal_reader(copy.journal)
    assert reader.execute("SELECT count(*) FROM ends").fetchone() == (12,), "no episode was played again"
    assert export_run(copy, tmp_path / "exported") == 3, "the last checkpoint is made again"


def test_a_branch_starts_from_the_checkpoint_of_its_parent(finished, tmp_path):
    recipe, folder, _ = finished
    branch = folder.branch(2, name="branch", recipe_text=dump_recipe(recipe), path=tmp_path / "branch")
    train(recipe=recipe, folder=branch)
    assert branch.info.parent.step == 2
    assert branch.checkpoint_steps() == [2, 3]
    assert same(weights(branch, 3), weights(folder, 3)), "in sync the same data position gives the same step"


def test_a_journal_older_than_every_checkpoint_is_one_sentence(finished, tmp_path):
    recipe, folder, _ = finished
    copy = RunFolder.open(shutil.copytree(folder.path, tmp_path / "copy"))
    with sqlite3.connect(copy.journal) as journal:
        journal.execute("DELETE FROM entries WHERE seq >= (SELECT min(seq) FROM entries WHERE tag = 'published')")
    for step in (0, 2):
        shutil.rmtree(copy.checkpoint(step))
    with pytest.raises(RunDamagedError, match=r"ends at step 0, before checkpoint 3: .* or branch with --from 3"):
        train(recipe=recipe, folder=copy)


def test_no_sound_checkpoint_is_one_sentence(finished, tmp_path):
    recipe, folder, _ = finished
    copy = RunFolder.open(shutil.copytree(folder.path, tmp_path / "copy"))
    for step in copy.checkpoint_steps():
        (copy.checkpoint(step) / state.MODEL).write_bytes(b"scratched")
    with pytest.raises(RunDamagedError, match="sound"):
        train(recipe=recipe, folder=copy)


def test_an_exported_policy_is_the_trained_one_in_transformers(finished, tmp_path):
    _, folder, _ = finished
    assert export_run(folder, tmp_path / "model") == 3
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    trained = weights(folder, 3)
    loaded = dict(model.named_parameters())
    assert all(torch.equal(trained[name], loaded[name]) for name in trained)
    assert tokenizer.chat_template
    with pytest.raises(UsageError, match="not empty"):
        export_run(folder, tmp_path / "model")


def test_an_exported_policy_can_be_trained_further_as_a_pretrained_model(finished, tmp_path):
    _, folder, _ = finished
    export_run(folder, tmp_path / "model")
    recipe, further = new_run(
        tmp_path, "model.type=pretrained", f"model.path={tmp_path / 'model'}", "warm_start.steps=0"
    )
    train(recipe=recipe, folder=further)
    assert same(weights(further, 0), weights(folder, 3))


POLICIES = ("scheduling.retention=break-even", "scheduling.admission=law", "engine.capacity_tokens=512")
POLICIES += ("scheduling.priority=switch",)


CALIBRATED = (*POLICIES, "scheduling.costs=calibrated")


@pytest.mark.parametrize("policies", [(), POLICIES, CALIBRATED], ids=["plain", "policies", "calibrated"])
def test_async_keeps_its_bound_and_its_books(tmp_path, policies):
    recipe, folder = new_run(tmp_path, "scheduling.mode=async", "scheduling.steps=6", *policies)
    train(recipe=recipe, folder=folder)
    reader = open_journal_reader(folder.journal)
    limits = reader.execute("SELECT count(*) FROM entries WHERE tag = 'concurrency_set'").fetchone()
    assert (limits != (0,)) == bool(policies)
    assert reader.execute("SELECT count(*), count(DISTINCT grp * 100 + slot) FROM ends").fetchone() == (24, 24)
    fitted = history(read_metrics(folder.metrics)).costs
    assert bool(fitted) == ("as fitted" in folder.report.read_text()) == (policies == POLICIES)
    if fitted:
        assert min(fitted[name] for name in ("decode_base", "backward_token", "optimizer", "publish")) > 0


def test_sft_leaves_a_policy_that_reinforcement_learning_goes_on_from(tmp_path):
    recipe, folder = new_run(tmp_path)
    sft(recipe=recipe, folder=folder)
    assert folder.checkpoint_steps() == [0]
    start = weights(folder, 0)
    train(recipe=recipe, folder=folder)
    assert same(weights(folder, 0), start)
    assert folder.checkpoint_steps() == [0, 2, 3]


def test_an_environment_that_cannot_begin_is_one_sentence(tmp_path):
    (tmp_path / "broken.py").write_text(
        "from springtide.environments.text import TextEnvironment\n"
        "class Broken(TextEnvironment):\n"
        "    def start(self, rng): raise ValueError('no such map')\n"
        "    def reply(self, text): ...\n"
    )
    recipe, folder = new_run(tmp_path, f"environment.path={tmp_path / 'broken.py'}:Broken", "warm_start.steps=0")
    with pytest.raises(UsageError, match="no such map"):
        train(recipe=recipe, folder=folder)
    assert read_status(folder.status).phase == "failed"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["rollout.max_context=192", "engine.capacity_tokens=200"], "sequences of up to 128 tokens"),
        (["model.type=pretrained", "model.path={model}", "rollout.max_context=4096"], "above the 256 tokens"),
    ],
)
def test_an_episode_longer_than_the_engine_holds_is_refused_before_anything_is_trained(
    finished, tmp_path, overrides, said
):
    export_run(finished[1], tmp_path / "model")
    overrides = [override.format(model=tmp_path / "model") for override in overrides]
    recipe, folder = new_run(tmp_path, *overrides)
    with pytest.raises(UsageError, match=said):
        train(recipe=recipe, folder=folder)
    assert folder.checkpoint_steps() == []


def test_a_run_whose_disk_was_full_at_its_last_checkpoint_has_it_once_there_is_room(tmp_path, monkeypatch):
    recipe, folder = new_run(tmp_path)
    save = CheckpointStore.save

    def full(store, step, write, position):
        if step > 0:
            raise StorageFullError(f"The disk is full: checkpoint {step} could not be written.")
        return save(store, step, write, position)

    monkeypatch.setattr(CheckpointStore, "save", full)
    with pytest.raises(StorageFullError, match="checkpoint 3"):
        train(recipe=recipe, folder=folder)
    assert folder.checkpoint_steps() == [0]
    monkeypatch.undo()
    train(recipe=recipe, folder=folder)
    assert folder.checkpoint_steps() == [0, 3]
    assert export_run(folder, tmp_path / "model") == 3


def test_a_damaged_last_checkpoint_of_a_finished_run_is_made_again(tmp_path, finished):
    recipe, original, _ = finished
    copy = shutil.copytree(original.path, tmp_path / "copy")
    folder = RunFolder.open(copy)
    (folder.checkpoint(3) / state.MODEL).write_bytes(b"torn")
    train(recipe=recipe, folder=folder)
    assert same(weights(folder, 3), weights(original, 3))


def test_a_full_disk_anywhere_is_named_with_its_remedy(tmp_path, monkeypatch):
    recipe, folder = new_run(tmp_path)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("springtide.launch.preparation.prepare_model_folder", full)
    with pytest.raises(StorageFullError, match="resume the run"):
        train(recipe=recipe, folder=folder)
    assert "The disk is full" in read_status(folder.status).detail


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", "{", "config.json that transformers cannot read"),
        ("config.json", '{"model_type": "nonesuch"}', "config.json that transformers cannot read"),
        ("tokenizer.json", "{", "tokenizer that cannot be read"),
        ("chat_template.jinja", "{% for message in messages %", "refuses messages"),
        ("chat_template.jinja", "{{ raise_exception('never') }}", r"'{path}' (takes no|refuses).*never"),
        ("chat_template.jinja", "{{ messages[-1].content }}<|im_end|>", "does not render the content"),
        ("model.safetensors", "torn", "cannot be loaded"),
        (None, None, "is not a folder"),
    ],
)
def test_a_pretrained_model_that_is_not_usable_is_refused_by_its_path(tmp_path, finished, file, content, said):
    path = tmp_path / "pretrained"
    if file is not None:
        export_run(finished[1], path)
        (path / file).write_text(content)
    recipe, folder = new_run(tmp_path, "model.type=pretrained", f"model.path={path}")
    with pytest.raises(UsageError, match=said.format(path=path)) as caught:
        train(recipe=recipe, folder=folder)
    assert str(path) in str(caught.value)
