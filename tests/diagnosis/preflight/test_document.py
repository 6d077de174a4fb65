"""Configurations as people keep them; none of them is ever run."""

import builtins
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.errors import UsageError
from springtide.diagnosis.preflight.command_line import parse_command_line
from springtide.diagnosis.preflight.document import read_document
from springtide.diagnosis.preflight.plan import plan_of
from springtide.diagnosis.preflight.python_source import parse_python

SCRIPT = r"""
#!/bin/bash
set -x
N=5   # members
export MODEL="Qwen/Qwen2.5-7B-Instruct"
BATCH=$((N * 8))
python3 -m verl.trainer.main_ppo --config-name=ppo \
    algorithm.adv_estimator=grpo \
    +data.train_files="['/a.parquet','/b.parquet']" \
    data.train_batch_size=$BATCH \
    data.max_response_length=${LENGTH:-2048} \
    actor_rollout_ref.model.path=$MODEL \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.rollout.n=$N \
    actor_rollout_ref.actor.use_kl_loss=False \
    trainer.default_local_dir=$OUT/ckpt \
    trainer.logger='["console","wandb"]' $@
"""


def test_a_script_of_verl():
    values, notes = parse_command_line(SCRIPT)
    assert values["data.train_batch_size"] == 40
    assert values["data.max_response_length"] == 2048
    assert values["data.train_files"] == ["/a.parquet", "/b.parquet"]
    assert values["actor_rollout_ref.model.path"] == "Qwen/Qwen2.5-7B-Instruct"
    assert values["actor_rollout_ref.actor.optim.lr"] == 1e-6
    assert values["actor_rollout_ref.rollout.n"] == 5
    assert values["actor_rollout_ref.actor.use_kl_loss"] is False
    assert values["trainer.logger"] == ["console", "wandb"]
    assert "trainer.default_local_dir" not in values
    assert notes == ["$OUT is not set in the script: what it stands for was not read."]


def test_a_command_line_of_trl():
    values, _ = parse_command_line(
        "accelerate launch --num_processes 4 train.py --model_name_or_path x --num_generations=8 --bf16 --no-shuffle\n"
        "  # --num_generations 99\n"
        "trl grpo --reward_weights 1.0 --max-completion-length 64 --beta -0.5"
    )
    assert values["num_processes"] == 4
    assert values["num_generations"] == 8
    assert values["bf16"] is True
    assert values["max_completion_length"] == 64
    assert values["beta"] == -0.5


def test_nothing_of_a_script_is_run(tmp_path):
    values, _ = parse_command_line(f"num_generations=$(touch {tmp_path}/made; echo 8) a.b=`touch {tmp_path}/made`")
    assert not (tmp_path / "made").exists()
    assert "a.b" not in values


SOURCE = """
import os
GROUP = 2 * 4
config = GRPOConfig(
    num_generations=GROUP, learning_rate=1e-5, max_completion_length=int(os.environ["L"]), **more
)
trainer = GRPOTrainer(model="Qwen/Qwen3-8B", reward_funcs=[right, tidy], args=config, eval_dataset=test,
                      peft_config=peft.LoraConfig(r=32, lora_alpha=64))
raise SystemExit("never run")
"""


def test_a_python_script():
    values, notes = parse_python(SOURCE)
    assert values == {
        "num_generations": 8,
        "learning_rate": 1e-5,
        "reward_funcs": 2,
        "model_name_or_path": "Qwen/Qwen3-8B",
        "eval_dataset": True,
        "lora_r": 32,
        "lora_alpha": 64,
    }
    assert notes == ["max_completion_length is computed in the source and was not read."]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"num_generations": 16, "nested": {"beta": 0.1}}'),
        ("a.json", "{'num_generations': 16, 'nested': {'beta': 0.1}, 'x': None}"),
        ("a.json", '{"num_generations": {"value": 16, "desc": null}, "nested": {"beta": 0.1}}'),
        ("a.toml", "num_generations = 16\n[nested]\nbeta = 0.1\n"),
        ("a.yaml", "num_generations: 16\nnested: {beta: 1e-1}\n"),
        ("config", '{"num_generations": 16, "nested": {"beta": 0.1}}'),
        ("a.py", "config = {'num_generations': 16, 'nested.beta': 0.1}"),
        ("a.sh", "python t.py --num_generations 16 nested.beta=0.1"),
    ],
)
def test_every_form_gives_the_same_names(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    values = read_document(tmp_path / name).values
    assert (values["num_generations"], values["nested.beta"]) == (16, 0.1)


def test_a_notebook(tmp_path):
    cells = [{"cell_type": "code", "source": ["%pip install trl\n", "c = GRPOConfig(num_generations=4)\n"]}]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    assert read_document(tmp_path / "a.ipynb").values["num_generations"] == 4


def test_yaml_without_its_parser_says_what_to_do(tmp_path, monkeypatch):
    plain = builtins.__import__

    def without(name, *arguments, **more):
        if name == "yaml":
            raise ModuleNotFoundError("No module named 'yaml'")
        return plain(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    (tmp_path / "a.yaml").write_text("num_generations: 16\n")
    with pytest.raises(UsageError, match="pip install pyyaml"):
        read_document(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b"{", "neither JSON nor a Python dict"),
        ("a.json", b"[1]", "no table of settings"),
        ("a.toml", b"a = ", "not valid TOML"),
        ("a.yaml", b"a: [", "not valid YAML"),
        ("a.py", b"def", "not valid Python"),
        ("a.sh", b"\xff\xfe\x00", "cannot be read as text"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=said):
        read_document(tmp_path / name)


def test_a_configuration_of_something_else_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"learning_rate": 1}')
    with pytest.raises(UsageError, match="none of the settings"):
        plan_of(read_document(tmp_path / "a.json"))
    with pytest.raises(UsageError, match="no file"):
        read_document(tmp_path / "b.json")


@given(text=st.text(max_size=200) | st.from_regex(r"(--?\w+[= ]?[\w.$(){}'\"]*\s*){1,6}", fullmatch=True))
def test_no_text_makes_a_parser_fail(text):
    parse_command_line(text)
    with contextlib.suppress(SyntaxError, ValueError):
        parse_python(text)


@given(text=st.text(max_size=100))
def test_no_file_makes_reading_fail(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("files")
    for suffix in (".json", ".toml", ".yaml", ".py", ".ipynb", ".sh", ""):
        path = folder / f"a{suffix}"
        path.write_text(text, encoding="utf-8", errors="replace")
        with contextlib.suppress(UsageError):
            read_document(path)
