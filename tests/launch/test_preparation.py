"""What happens before a run is rolled out: who computes where, what an interruption leaves, what is damaged."""

import asyncio
import json
import shutil
import signal
import threading

import pytest

from fakes.tokenizer import STRIPS_THINKING_AT_USER
from launch.runs import new_run, same, weights
from springtide.core.errors import InvalidEpisodeError, RunDamagedError, SpringtideError, UnsafeSandboxError, UsageError
from springtide.launch import preparation
from springtide.launch import train as launch
from springtide.launch.chats import read_chats
from springtide.launch.export import export_run
from springtide.launch.preparation import open_source
from springtide.launch.train import sft, train
from springtide.recipe import load_recipe
from springtide.telemetry.jsonl import read_metrics, series
from springtide.telemetry.run_folder import Parent, RunFolder
from springtide.telemetry.status import read_status


class CtrlC:
    """A view that interrupts the main thread, as a terminal does, once a supervised step is shown."""

    def __init__(self):
        self.pressed = False

    def __call__(self, status):
        if status.phase == "warm start" and status.detail.startswith("step") and not self.pressed:
            self.pressed = True
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def test_an_interrupted_warm_start_ends_with_the_step_that_it_is_in(tmp_path):
    recipe, folder = new_run(tmp_path, "warm_start.steps=3000")
    with pytest.raises(KeyboardInterrupt):
        train(recipe=recipe, folder=folder, view=CtrlC())
    assert folder.checkpoint_steps() == []
    assert read_status(folder.status).phase == "interrupted"
    steps = [step for step, _ in series(read_metrics(folder.metrics), "warm_start/loss")]
    assert max(steps, default=-3000) < 0, "the lane did not train on to its end"


def chats_in(folder):
    path = folder / "chats.jsonl"
    chat = {"messages": [{"role": "user", "content": "toss"}, {"role": "assistant", "content": "heads"}]}
    path.write_text(json.dumps(chat) + "\n")
    return path


def test_an_interrupted_imitation_of_chats_goes_on_with_the_chats(tmp_path):
    path = chats_in(tmp_path)
    settings = ["scheduling.steps=0", "evaluation.tasks=0", "warm_start.steps=30"]
    recipe, folder = new_run(tmp_path, *settings, chats=path)
    with pytest.raises(KeyboardInterrupt):
        sft(recipe=recipe, folder=folder, chats=read_chats(path), view=CtrlC())
    shutil.move(path, tmp_path / "elsewhere")
    resumed = RunFolder.open(folder.path)
    with pytest.raises(UsageError, match=r"cannot be read any more .*chats\.jsonl.*put the file back"):
        train(recipe=recipe, folder=resumed)
    shutil.move(tmp_path / "elsewhere", path)
    train(recipe=recipe, folder=resumed)
    assert series(read_metrics(folder.metrics), "warm_start/demonstration_success") == [], (
        "demonstrations have a success rate"
    )
    whole_recipe, whole = new_run(tmp_path, *settings)
    sft(recipe=whole_recipe, folder=whole, chats=read_chats(path))
    assert same(weights(resumed, 0), weights(whole, 0))


def test_trainer_and_engine_are_made_once_and_on_their_lanes(tmp_path, monkeypatch):
    made = []

    def watched(module, name):
        make = getattr(module, name)

        def call(*arguments, **options):
            made.append((name, threading.current_thread().name.rpartition("_")[0]))
            return make(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    for name in ("make_trainer", "open_tokenizer", "initial_model"):
        watched(preparation, name)
    for name in ("make_engine", "SqliteJournal"):
        watched(launch, name)
    recipe, folder = new_run(tmp_path, "scheduling.steps=0", "evaluation.tasks=0", "warm_start.steps=1")
    train(recipe=recipe, folder=folder)
    assert made == [
        ("SqliteJournal", "lane-journal"),
        ("open_tokenizer", "lane-trainer"),
        ("initial_model", "lane-trainer"),
        ("make_trainer", "lane-trainer"),
        ("make_engine", "lane-engine"),
    ]


def test_a_branch_that_lost_its_checkpoint_is_damaged_and_not_trained_from_the_beginning(tmp_path):
    recipe, folder = new_run(tmp_path, parent=Parent("older", 40))
    with pytest.raises(RunDamagedError, match=r"branched from run older at step 40 .*--from 40"):
        train(recipe=recipe, folder=folder)
    assert folder.checkpoint_steps() == []


def test_a_resumed_run_needs_nothing_of_the_folder_that_its_model_came_from(tmp_path):
    recipe, first = new_run(tmp_path, "scheduling.steps=0", "evaluation.tasks=0", "warm_start.steps=1")
    train(recipe=recipe, folder=first)
    export_run(first, tmp_path / "model")
    settings = ["model.type=pretrained", f"model.path={tmp_path / 'model'}", "warm_start.steps=0", "scheduling.steps=2"]
    whole_recipe, whole = new_run(tmp_path, *settings)
    train(recipe=whole_recipe, folder=whole)
    recipe, folder = new_run(tmp_path, *settings)
    sft(recipe=recipe, folder=folder)
    shutil.rmtree(tmp_path / "model")
    train(recipe=load_recipe(folder.recipe), folder=folder)
    assert same(weights(folder, 2), weights(whole, 2))


@pytest.mark.parametrize("lost", ["tokenizer.json", "config.json"])
def test_a_lost_file_of_the_runs_own_model_is_damage(tmp_path, lost):
    recipe, folder = new_run(tmp_path, "scheduling.steps=0", "evaluation.tasks=0", "warm_start.steps=1")
    train(recipe=recipe, folder=folder)
    (folder.model / lost).unlink()
    with pytest.raises(RunDamagedError, match="restore it from a copy"):
        train(recipe=recipe, folder=folder)
    with pytest.raises(RunDamagedError, match="restore it from a copy"):
        export_run(folder, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


class DeadSandbox:
    def __init__(self, error):
        self.error = error
        self.closed = False

    async def start(self):
        raise self.error

    async def close(self):
        self.closed = True


async def begin(sandbox, monkeypatch, folder):
    monkeypatch.setattr(preparation, "open_sandbox", lambda config: sandbox)
    async with open_source(load_recipe("quickstart"), folder):
        raise AssertionError("it did not start")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InvalidEpisodeError("infrastructure", "the warden ended: it was killed."), "the warden ended: it was killed"),
        (BrokenPipeError("the warden has ended"), "the warden has ended"),
        (TimeoutError(), "it did not answer in time"),
    ],
)
def test_a_sandbox_that_dies_at_its_start_is_one_sentence(tmp_path, monkeypatch, error, said):
    sandbox = DeadSandbox(error)
    _, folder = new_run(tmp_path)
    with pytest.raises(SpringtideError) as caught:
        asyncio.run(begin(sandbox, monkeypatch, folder))
    assert str(caught.value) == f"The sandbox did not start ({said}); run `springtide sandbox` to see why."
    assert sandbox.closed


def test_a_host_without_a_safe_sandbox_keeps_its_own_words(tmp_path, monkeypatch):
    _, folder = new_run(tmp_path)
    with pytest.raises(UnsafeSandboxError, match="run as root"):
        asyncio.run(begin(DeadSandbox(UnsafeSandboxError("run as root")), monkeypatch, folder))


DESK = """
from springtide.core.message import Message, ToolSchema
from springtide.core.outcome import Valid
from springtide.ports.environment import Observation

class Desk:
    tool_replies_only = {declared}
    async def reset(self, task):
        look = ToolSchema(name="look", description="look")
        return Observation(messages=(Message(role="user", content="go"),), tools=(look,))
    async def step(self, action): return Observation(messages=(Message(role="tool", content="nothing"),))
    async def verify(self, ending): return Valid(reward=1.0, ending=ending)
    async def close(self): pass
"""


def test_a_reasoning_model_is_taken_by_an_environment_that_answers_with_tools_alone(tmp_path):
    recipe, tiny = new_run(tmp_path, "scheduling.steps=0", "evaluation.tasks=0", "warm_start.steps=1")
    train(recipe=recipe, folder=tiny)
    export_run(tiny, tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(STRIPS_THINKING_AT_USER)
    none = ["scheduling.steps=0", "evaluation.tasks=0", "warm_start.steps=0"]
    for declared in (True, False):
        (tmp_path / f"desk_{declared}.py").write_text(DESK.format(declared=declared))
        where = f"environment.path={tmp_path}/desk_{declared}.py:Desk"
        recipe, folder = new_run(tmp_path, "model.type=pretrained", f"model.path={tmp_path}/model", where, *none)
        if declared:
            train(recipe=recipe, folder=folder)
            assert folder.checkpoint_steps() == [0]
        else:
            with pytest.raises(UsageError, match="declare `tool_replies_only = True`"):
                train(recipe=recipe, folder=folder)
