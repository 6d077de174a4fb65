"""tinker-cookbook's rows, our own runs, and what people write themselves: JSON lines, JSON, CSV."""

import json

import pytest

from springtide.diagnosis.read import read


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def tinker(step):
    return {
        "step": step,
        "progress/batch": step,
        "optim/lr": 4e-5,
        "optim/entropy": 0.5,
        "optim/kl_sample_train_v1": -0.001,
        "optim/kl_sample_train_v2": 0.002,
        "env/all/reward/total": step / 10,
        "env/all/by_group/frac_mixed": 0.25,
        "env/all/by_group/frac_all_good": 0.75,
    }


def test_tinker(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(lines([{**tinker(step), "time/total": 5.0} for step in range(6)]))
    (tmp_path / "config.json").write_text(json.dumps({"learning_rate": 1e-4, "loss_fn": "ppo", "async_config": None}))
    (tmp_path / "checkpoints.jsonl").write_text(lines([{"name": "000003", "batch": 3}, {"name": "final", "batch": 5}]))
    (frame,) = read(tmp_path)
    assert frame.framework == "tinker"
    assert frame.series["train/zero_advantage_groups"].values[0] == 0.75
    assert frame.series["groups/all_right"].values[0] == 0.75
    assert frame.series["train/behaviour_kl"].key == "optim/kl_sample_train_v2"
    assert frame.checkpoints == (3, 5)
    assert frame.settings == {"learning_rate": 1e-4, "loss": "ppo"}


def test_tinker_runs_that_were_appended_to_one_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines([tinker(0) | {"optim/entropy": number / 10} for number in range(3)] + [tinker(1)]))
    assert [frame.source.name for frame in read(path)] == ["metrics.jsonl#1", "metrics.jsonl#2", "metrics.jsonl#3"]


def own(step, **metrics):
    return {"time": 1e9 + step, "step": step, "metrics": {"reward/mean": step / 10, **metrics}}


def test_a_run_of_our_own(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "recipe.toml").write_text("[scheduling]\ngroup_size = 8\n[training.optimizer]\nlearning_rate = 1e-4\n")
    (tmp_path / "status.json").write_text(json.dumps({"phase": "failed", "detail": "the disk is full"}))
    (tmp_path / "checkpoints" / "step-000002").mkdir(parents=True)
    rows = [own(1), {"time": 1.0, "step": 0, "metrics": {"invalid/rate": 0.0}}, own(2), own(3, **{"train/loss": None})]
    (tmp_path / "metrics.jsonl").write_text(lines(rows) + '{"torn": ')
    (frame,) = read(tmp_path)
    assert frame.framework == "springtide"
    assert list(frame.series["reward/mean"].steps) == [1, 2, 3]
    assert str(frame.series["train/loss"].values[0]) == "nan"
    assert frame.settings == {"group_size": 8, "learning_rate": 1e-4}
    assert (frame.error, frame.checkpoints) == ("the disk is full", (2,))
    assert [found.source.name for found in read(tmp_path / "metrics.jsonl")] == ["metrics.jsonl"]


def test_a_run_of_our_own_that_was_resumed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    later = [own(step, **{"reward/mean": 0.9}) for step in (3, 4)]
    path.write_text(lines([*(own(step) for step in range(1, 6)), *later]))
    (frame,) = read(path)
    assert list(frame.series["reward/mean"].values) == [0.1, 0.2, 0.9, 0.9]


def mine(step):
    return {"global_step": step, "mean_reward": step / 10, "policy": {"entropy": 0.5, "loss": 0.1}, "note": "fine"}


def expect_mine(frame, steps):
    assert frame.framework == "generic"
    assert list(frame.series["reward/mean"].steps) == list(steps)
    assert frame.series["train/entropy"].key == "policy/entropy"


def test_rows_of_a_loop_of_ones_own(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(lines(map(mine, range(5))) + "garbage\n[1]\n" + lines(map(mine, range(5, 8))))
    (frame,) = read(path)
    expect_mine(frame, range(8))
    assert "2 lines" in frame.notes[0].text


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"args": {}, "history": rows}])
def test_a_history_in_one_json_file(tmp_path, wrap):
    path = tmp_path / "history.json"
    path.write_text(json.dumps(wrap([mine(step) for step in range(5)])))
    expect_mine(*read(path), range(5))


def test_columns_in_one_json_file(tmp_path):
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"step": [1, 2, 3], "reward": [0.1, None, 0.3], "tags": ["a", "b", "c"]}))
    (frame,) = read(path)
    assert list(frame.series["reward/mean"].steps) == [1, 3]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_table(tmp_path, mark):
    path = tmp_path / "log.csv"
    rows = [
        ("iteration", "reward", "entropy", "comment"),
        *((step, step / 10, "" if step else 0.5, "x") for step in range(5)),
    ]
    path.write_text("\ufeff" + "\n".join(mark.join(map(str, row)) for row in rows))
    (frame,) = read(path)
    assert list(frame.series["reward/mean"].steps) == list(range(5))
    assert list(frame.series["train/entropy"].steps) == [0]


def test_rollouts_alone(tmp_path):
    (tmp_path / "1.jsonl").write_text(lines([{"prompt": "2+2?", "completion": "4", "reward": 1.0}]))
    (frame,) = read(tmp_path)
    assert frame.rows == 0
    assert [path.name for path in frame.samples] == ["1.jsonl"]


def test_files_of_other_kinds_are_not_read(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["x"], "hidden_size": [1, 2, 3]}')
    (tmp_path / "tokenizer.json").write_text('{"vocab": {"a": 0}}')
    (tmp_path / "README.md").write_text("# reward: 3\n")
    (tmp_path / "data.csv").write_text("name,place\nx,y\n")
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    assert read(tmp_path) == []


@pytest.mark.parametrize(
    "form",
    [
        "2030-05-01 12:00:00,123 INFO step {0} | loss 0.31 | reward=0.{0} | acc 45.0%",
        "Step: {0}, reward: 0.{0}, loss: 3.1e-1, accuracy: 45%, time 12:30",
        "[iter 9/9] step={0} loss=0.31 mean_reward=0.{0} acc=0.45",
    ],
)
def test_lines_of_a_loop_of_ones_own(tmp_path, form):
    path = tmp_path / "run.log"
    path.write_text("starting with 3 workers\n" + "".join(form.format(step) + "\n" for step in range(1, 6)))
    (frame,) = read(path)
    assert list(frame.series["reward/mean"].steps) == [1, 2, 3, 4, 5]
    assert frame.series["reward/mean"].values == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert frame.series["train/loss"].values[0] == 0.31
