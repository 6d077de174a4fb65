"""Consoles of frameworks that print in a form of their own, and what is put together from several of them."""

import re

import pytest

from diagnosis.samples import printed as sample
from diagnosis.samples.run import steps
from springtide.diagnosis.gather import gather
from springtide.diagnosis.readers import printed
from springtide.diagnosis.sniff import reader_of

PRECISION = {"areal": 1e-4, "skyrl": 1e-4, "nemo_rl": 1e-4}
FIRST = {"openrlhf": 1, "skyrl": 1, "nemo_rl": 1}
REWARD = {
    "openrlhf": "reward",
    "slime": "rollout/raw_reward",
    "roll": "critic/score/mean",
    "skyrl": "reward/avg_raw_reward",
    "nemo_rl": "train/reward",
    "areal": "ppo_actor/task_reward/avg",
}


@pytest.mark.parametrize("framework", REWARD)
def test_every_step_is_read(tmp_path, framework):
    path = getattr(sample, framework)(tmp_path / "run.log", 30)
    assert reader_of(path) is printed
    (log,) = printed.read(path)
    assert log.framework == framework
    trained = [row for row in log.rows if row.kind == "train"]
    first = FIRST.get(framework, 0)
    assert [row.step for row in trained] == list(range(first, 30 + first))
    rewards = [row.values[REWARD[framework]] for row in trained]
    assert rewards == pytest.approx([m["reward"] for m in steps(30)], abs=PRECISION.get(framework, 1e-12))


def test_openrlhf_evaluates(tmp_path):
    (log,) = printed.read(sample.openrlhf(tmp_path / "run.log", 30))
    held_out = [row for row in log.rows if row.kind == "eval"]
    assert [row.step for row in held_out] == [10, 20, 30]
    assert "eval_aime_pass1" in held_out[0].values


def test_openrlhf_of_before_it_printed_steps(tmp_path):
    (log,) = printed.read(sample.openrlhf_bars(tmp_path / "run.log", 12))
    assert [row.step for row in log.rows] == list(range(1, 13))
    expected = [m["reward"] for m in steps(12)]
    assert [row.values["reward"] for row in log.rows] == pytest.approx(expected, abs=1e-4)
    assert log.rows[0].values["response_length"] > 200


def test_areal_of_one_pair_in_a_row(tmp_path):
    (log,) = printed.read(sample.areal(tmp_path / "run.log", 12, actor="grpo_actor", pairs=1))
    rewards = [row.values["grpo_actor/task_reward/avg"] for row in log.rows]
    assert rewards == pytest.approx([m["reward"] for m in steps(12)], abs=1e-4)


def test_an_orchestrator_of_the_first_versions_is_known(tmp_path):
    path = tmp_path / "orchestrator.log"
    line = (
        "10:00:00 SUCCESS Step {} | Time: 98.02s | Reward: 0.4353 | "
        "Throughput: 900.1 tokens/s | Seq. Length: 2069.9 tokens/sample"
    )
    path.write_text("\n".join(line.format(step) for step in range(5)))
    (log,) = printed.read(path)
    assert [row.step for row in log.rows] == list(range(5))
    assert log.rows[0].values == {
        "time/step": 98.02,
        "reward/all/mean": 0.4353,
        "perf/throughput": 900.1,
        "seq_len/all/mean": 2069.9,
    }


def test_slime_comes_onto_one_axis(tmp_path):
    (log,) = printed.read(sample.slime(tmp_path / "run.log", 20, each=4))
    trained = [row for row in log.rows if row.kind == "train"]
    assert [row.step for row in trained] == list(range(20))
    for row, m in zip(trained, steps(20), strict=True):
        assert row.values["rollout/raw_reward"] == m["reward"]
        assert row.values["train/entropy_loss"] == pytest.approx(m["entropy"] + 1.5)
    assert [row.step for row in log.rows if row.kind == "eval"] == [4, 9, 14, 19]


def test_slime_that_was_started_again_stays_two(tmp_path):
    path = sample.slime(tmp_path / "run.log", 20)
    path.write_text(path.read_text() * 2)
    (log,) = printed.read(path)
    assert [row.step for row in log.rows if row.kind == "train"] == [*range(20), *range(20)]


@pytest.mark.parametrize("colon", ["", ":"])
def test_the_two_runs_of_prime_rl_are_one(tmp_path, colon):
    trainer, orchestrator = sample.prime_rl(tmp_path, 30, colon)
    logs = [log for path in (orchestrator, trainer) for log in printed.read(path)]
    (log,) = gather(logs)
    assert log.framework == "prime_rl"
    assert [row.step for row in log.rows] == list(range(1, 31))
    for row, m in zip(log.rows, steps(30), strict=True):
        assert row.values["reward/all/mean"] == pytest.approx(m["reward"], abs=1e-4)
        assert row.values["mismatch_kl/all/mean"] == pytest.approx(m["gap"], abs=1e-4)
        assert row.values["time/step"] == pytest.approx(m["seconds"], abs=0.01)
        assert row.values["orchestrator/time/step"] == 65
        assert row.values["trainable/mean"] == 0.75
        assert row.values["error/all/mean"] == 0.015


def test_two_pairs_of_prime_rl_go_by_their_names(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        sample.prime_rl(tmp_path / name, 10 if name == "a" else 20)
    paths = sorted(tmp_path.rglob("*.stdout"))
    logs = gather([log for path in paths for log in printed.read(path)])
    assert [len(log.rows) for log in logs] == [10, 20]


def test_a_trainer_whose_orchestrator_is_gone_stays_alone(tmp_path):
    trainer, _ = sample.prime_rl(tmp_path)
    (log,) = gather(printed.read(trainer))
    assert "reward/all/mean" not in log.rows[0].values
    assert len(log.rows) == 30


def test_an_error_at_the_end_is_told(tmp_path):
    path = sample.roll(tmp_path / "run.log")
    with path.open("a") as file:
        file.write("Traceback (most recent call last):\n  File x\ntorch.OutOfMemoryError: CUDA out of memory\n")
    (log,) = printed.read(path)
    assert log.error == "torch.OutOfMemoryError: CUDA out of memory"


def test_an_error_in_the_middle_is_told_with_its_line(tmp_path):
    path = sample.roll(tmp_path / "run.log")
    other = "INFO engine: running\n" * 40_000
    before = path.read_text() + other
    path.write_text(f"{before}Traceback (most recent call last):\n  File x\nValueError: odd\n{other}{path.read_text()}")
    (log,) = printed.read(path)
    assert log.error is None
    (note,) = log.notes
    assert note.text.endswith("ValueError: odd")
    assert note.line == before.count("\n") + 3
    assert len(log.rows) == 60


@pytest.mark.parametrize("framework", ["skyrl", "nemo_rl", "prime_rl"])
def test_what_four_decimals_cannot_show_is_not_zero(tmp_path, framework):
    if framework == "prime_rl":
        path, _ = sample.prime_rl(tmp_path)
    else:
        path = getattr(sample, framework)(tmp_path / "run.log")
    keys = {"skyrl": "policy/rollout_train_logprobs_abs_diff_mean", "nemo_rl": "train/gen_kl_error"}
    key = keys.get(framework, "mismatch_kl/all/mean")
    (log,) = printed.read(path)
    assert key in log.rows[0].values
    assert "policy/policy_lr" not in log.rows[0].values
    path.write_text(re.sub(r"0\.00[34]\d", "0.0000", path.read_text()))
    (log,) = printed.read(path)
    assert key not in log.rows[0].values
    assert len(log.rows) >= 30


def test_a_first_step_far_into_the_file_is_found(tmp_path):
    path = sample.roll(tmp_path / "run.log")
    path.write_text("INFO engine: loading shard\n" * 20_000 + path.read_text())
    assert reader_of(path) is printed
