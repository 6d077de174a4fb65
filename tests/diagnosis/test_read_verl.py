"""verl: its console in all its notations, its file logger, and rollouts beside them."""

import json

import pytest

from springtide.diagnosis.read import read

OLD = {
    "actor/entropy_loss": 0.4,
    "actor/lr(1e-4)": 0.01,
    "critic/kl": 0.002,
    "timing/step": 9.0,
    "val/test_score/gsm8k": 0.5,
}
NEW = {
    "actor/entropy": 0.4,
    "actor/lr": 1e-6,
    "actor/reward_kl_penalty": 0.002,
    "timing_s/step": 9.0,
    "val-core/gsm8k/acc/mean@1": 0.5,
}
LAUNCH = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=512 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=128 actor_rollout_ref.rollout.n=8 +trainer.val_before_train=False"
)
PREFIX = "\x1b[36m(TaskRunner pid=4242)\x1b[0m "


def values(step):
    return {"critic/score/mean": step / 100, "critic/rewards/mean": step / 100 - 0.01, "response_length/mean": 150.0}


def plain(value):
    return f"{value:.6f}"


def numpy(value):
    return f"np.float64({value!r})"


def line(step, row, text=plain, prefix=PREFIX):
    return f"{prefix}step:{step} - " + " - ".join(f"{key}:{text(value)}" for key, value in row.items()) + "\n"


@pytest.mark.parametrize("text", [plain, numpy])
@pytest.mark.parametrize("prefix", [PREFIX, "", "(TaskRunner pid=1, ip=10.0.0.1) "])
def test_console(tmp_path, text, prefix):
    noise = "(WorkerDict pid=7) WARNING step: 3 - not a row\n"
    path = tmp_path / "train.log"
    path.write_text(
        LAUNCH + "\n" + "".join(noise + line(step, values(step) | NEW, text, prefix) for step in range(1, 30))
    )
    (frame,) = read(path)
    assert frame.framework == "verl"
    assert list(frame.series["reward/mean"].steps) == list(range(1, 30))
    assert frame.series["reward/mean"].key == "critic/score/mean"
    assert frame.series["train/learning_rate"].values[0] == pytest.approx(1e-6)
    assert frame.settings["updates_per_batch"] == 4.0
    assert frame.settings["group_size"] == 8
    assert "calculate_log_probs" in frame.unavailable["mismatch/probability_difference"].turn_on


@pytest.mark.parametrize("names", [OLD, NEW])
def test_names_of_all_times(tmp_path, names):
    path = tmp_path / "train.log"
    path.write_text("".join(line(step, values(step) | names) for step in range(3)))
    (frame,) = read(path)
    found = {
        name: frame.series[name].values[0] for name in ("train/entropy", "train/learning_rate", "train/reference_kl")
    }
    assert found == pytest.approx({"train/entropy": 0.4, "train/learning_rate": 1e-6, "train/reference_kl": 0.002})
    assert frame.series["step/seconds"].values[0] == 9.0
    assert frame.series["eval/success"].values[0] == 0.5


def test_validation_before_training_shares_the_first_step(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(
        line(0, {"val-core/gsm8k/acc/mean@1": 0.5}) + "".join(line(step, values(step)) for step in range(3))
    )
    (frame,) = read(path)
    assert len(frame.series["reward/mean"]) == 3
    assert len(frame.series["eval/success"]) == 1


def test_a_line_that_was_cut_gives_what_is_whole(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(line(1, values(1)) + line(2, values(2))[:90] + "\n(WorkerDict pid=7) hello\n" + line(3, values(3)))
    (frame,) = read(path)
    assert list(frame.series["reward/mean"].steps) == [1, 2, 3]
    assert list(frame.series["completion/length"].steps) == [1, 3]


def test_the_printed_configuration(tmp_path):
    shown = (
        f"{PREFIX}{{'actor_rollout_ref': {{'actor': {{'clip_ratio': 0.2,\n"
        "unrelated line of another program\n"
        f"{PREFIX}                                 'optim': {{'lr': 1e-06,\n"
        f"{PREFIX}                                           'min_lr_ratio': None}}}},\n"
        f"{PREFIX}                       'rollout': {{'n': 5, 'temperature': 1.0}}}},\n"
        f"{PREFIX} 'algorithm': {{'adv_estimator': 'gae'}}}}\n"
    )
    path = tmp_path / "train.log"
    path.write_text(shown + line(1, values(1)))
    (frame,) = read(path)
    expected = {"learning_rate": 1e-6, "group_size": 5, "temperature": 1.0, "algorithm": "gae", "clip_high": 0.2}
    assert {name: frame.settings[name] for name in expected} == expected


def test_file_logger_with_checkpoints_and_rollouts(tmp_path):
    rows = [{"step": step, "data": values(step) | NEW} for step in range(1, 6)]
    (tmp_path / "exp.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for step in (2, 4):
        (tmp_path / "checkpoints" / f"global_step_{step}" / "actor").mkdir(parents=True)
    (tmp_path / "rollouts").mkdir()
    said = {"input": "2+2?", "output": "4", "gts": "4", "score": 1.0, "step": 1}
    (tmp_path / "rollouts" / "1.jsonl").write_text(json.dumps(said) + "\n")
    (frame,) = read(tmp_path)
    assert frame.framework == "verl"
    assert frame.last_step == 5
    assert frame.checkpoints == (2, 4)
    assert [path.name for path in frame.samples] == ["1.jsonl"]


def test_console_and_file_of_one_run_are_one_frame(tmp_path):
    steps = range(1, 20)
    (tmp_path / "train.log").write_text(
        "".join(line(step, values(step), lambda value: f"{value:.3f}") for step in steps)
    )
    (tmp_path / "exp.jsonl").write_text(
        "".join(json.dumps({"step": step, "data": values(step)}) + "\n" for step in steps)
    )
    assert len(read(tmp_path)) == 1


def test_other_runs_beside_it_stay_apart(tmp_path):
    for name, sign in (("a.log", 1), ("b.log", 2)):
        (tmp_path / name).write_text("".join(line(step, values(step * sign)) for step in range(20)))
    assert [frame.source.name for frame in read(tmp_path)] == ["a.log", "b.log"]


@pytest.mark.parametrize(("decimals", "known"), [(3, False), (9, True)])
def test_three_decimals_do_not_make_a_learning_rate_zero(tmp_path, decimals, known):
    row = {"actor/lr": 1e-6, "actor/kl_loss": 1e-4, "critic/score/mean": 0.0, "actor/grad_norm": 0.25}
    lines = [" - ".join(f"{name}:{value:.{decimals}f}" for name, value in row.items()) for _ in range(8)]
    path = tmp_path / "run.log"
    path.write_text("".join(f"step:{step} - {line}\n" for step, line in enumerate(lines)))
    (frame,) = read(path)
    assert ("train/learning_rate" in frame.series) is known
    assert ("train/reference_kl" in frame.series) is known
    assert list(frame.series["reward/mean"].values) == [0.0] * 8
