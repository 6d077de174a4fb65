"""From each framework's log to canonical metrics: old names and new, what a name meant before, and what is missing."""

import json

import numpy as np
import pytest

from diagnosis.samples import printed as sample
from diagnosis.samples.run import steps
from diagnosis.samples.stores import SGLANG, START, art, event_file, mlflow_run, trackio, vllm_scrape
from springtide.diagnosis.alias import tables
from springtide.diagnosis.metric import metrics
from springtide.diagnosis.read import read

FRAMEWORKS = ("openrlhf", "nemo_rl", "slime", "prime_rl", "areal", "skyrl", "roll", "art", "vllm", "sglang")


def events(folder, rows):
    """Rows of a step each, as an event file."""
    event_file(folder, [(step, START + 10 * step, row) for step, row in enumerate(rows)])
    (frame,) = read(folder)
    return frame


def of(name):
    return np.array([m[name] for m in steps(30)])


def test_tables_speak_of_known_metrics():
    known = {name for name in metrics() if not name.endswith("/*")}
    by_name = {table.framework: table for table in tables()}
    for framework in FRAMEWORKS:
        table = by_name[framework]
        assert {*table.metrics, *table.never} <= known, framework
        assert not table.metrics.keys() & table.never.keys(), framework


@pytest.mark.parametrize("framework", ["openrlhf", "nemo_rl", "slime", "areal", "skyrl", "roll"])
def test_consoles(tmp_path, framework):
    getattr(sample, framework)(tmp_path / "run.log", 30)
    (frame,) = read(tmp_path)
    assert frame.framework == framework
    assert frame.series["reward/mean"].values == pytest.approx(of("reward"), abs=1e-3)
    assert frame.unknown == ()
    if framework != "nemo_rl":
        assert frame.series["train/clip_fraction"].values == pytest.approx(of("clip"), abs=1e-4)
        assert framework == "skyrl" or frame.series["train/learning_rate"].aggregate == "last"
        gap = "train/behaviour_kl" if framework == "openrlhf" else "mismatch/logp_difference"
        assert framework == "areal" or frame.series[gap].values == pytest.approx(of("gap"), abs=1e-4)
    assert frame.series["completion/length"].values == pytest.approx(of("length"), rel=1e-2)


def test_prime_rl_under_all_its_names(tmp_path):
    for version, names in {
        "old": {"reward": "reward/mean", "length": "completion_len/mean", "solved": "batch/effective_batch_size"},
        "middle": {"reward": "reward/all/mean", "length": "decode_len/all/mean", "solved": "effective_batch_size/all"},
        "new": {
            "reward": "train/agg/effective/solver/reward/mean",
            "length": "train/agg/effective/solver/num_output_tokens/mean",
            "solved": "train/agg/all/solver/solved_some",
        },
    }.items():
        rows = {"trainer": [], "orchestrator": []}
        entropy = "entropy/mean" if version == "old" else "entropy/all/mean"
        gap = "mismatch_kl/mean" if version == "old" else "mismatch_kl/all/mean"
        for step, m in enumerate(steps(30), start=1):
            for part in ({entropy: m["entropy"], gap: m["gap"], "loss/mean": m["loss"]}, {"optim/lr": 1e-6}):
                rows["trainer"].append({"step": step, "time": START + step, **part})
            part = {names["reward"]: m["reward"], names["length"]: m["length"], names["solved"]: 0.75}
            rows["orchestrator"].append({"step": step, "time": START + step, "progress/total_tokens": 9, **part})
        for process, lines in rows.items():
            folder = tmp_path / version / process
            folder.mkdir(parents=True)
            (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        (frame,) = read(tmp_path / version)
        assert frame.framework == "prime_rl", version
        assert frame.series["reward/mean"].values == pytest.approx(of("reward")), version
        assert frame.series["train/entropy"].values == pytest.approx(of("entropy")), version
        assert frame.series["train/behaviour_kl"].values == pytest.approx(of("gap")), version
        assert frame.series["completion/length"].values == pytest.approx(of("length")), version
        assert frame.series["train/zero_advantage_groups"].values == pytest.approx(0.25), version


def test_prime_rls_consoles(tmp_path):
    sample.prime_rl(tmp_path)
    (frame,) = read(tmp_path)
    assert frame.series["reward/mean"].values == pytest.approx(of("reward"), abs=1e-4)
    assert frame.series["completion/truncated"].values == pytest.approx(of("truncated"), abs=1e-3)
    assert frame.series["environment/failures"].values == pytest.approx(0.015)
    assert frame.series["staleness/max"].values[0] == 2


def test_art(tmp_path):
    art(tmp_path / "history.jsonl")
    (frame,) = read(tmp_path)
    assert frame.framework == "art"
    assert frame.series["reward/mean"].values == pytest.approx(of("reward"))
    assert frame.series["train/zero_advantage_groups"].values == pytest.approx(0.25)
    assert list(frame.series["eval/success"].steps) == [0, 10, 20]
    assert "finish_reason" in frame.unavailable["completion/truncated"].turn_on


def test_nemo_rl_counts_in_percent(tmp_path):
    rows = [
        {"train/reward": 0.5, "train/gen_kl_error": 1e-4, "train/baseline_reward/pct_mixed": 60.0, "train/lr": 1e-6}
        | {"train/baseline_reward/pct_0": 30.0, "train/baseline_reward/pct_1": 10.0, "train/loss": 0.1}
        | {"timing/train/total_step_time": 50.0, "timing/train/exposed_generation": 20.0, "validation/accuracy": 0.4}
        for _ in range(5)
    ]
    frame = events(tmp_path, rows)
    assert frame.framework == "nemo_rl"
    assert frame.series["train/zero_advantage_groups"].values == pytest.approx(0.4)
    assert frame.series["groups/all_wrong"].values == pytest.approx(0.3)
    assert frame.series["groups/all_right"].values == pytest.approx(0.1)
    assert frame.series["idle/trainer"].values == pytest.approx(0.4)
    assert "async_grpo" in frame.unavailable["staleness/mean"].turn_on


def test_areals_share_without_an_end_is_not_believed_where_it_never_moves(tmp_path):
    common = {"ppo_actor/update/entropy/avg": 0.4, "ppo_actor/task_reward/avg": 0.5}
    still = events(tmp_path / "still", [common | {"ppo_actor/no_eos_ratios/avg": 1 / 16} for _ in range(30)])
    assert "never moves" in still.unavailable["completion/truncated"].reason
    rows = [common | {"ppo_actor/no_eos_ratios/avg": share} for share in np.linspace(0, 0.9, 30)]
    assert events(tmp_path / "moving", rows).series["completion/truncated"].values[-1] == pytest.approx(0.9)


def test_areals_lengths_are_without_the_prompt(tmp_path):
    rows = [
        {"grpo_actor/seq_len/avg": 400.0, "grpo_actor/prompt_len/avg": 150.0, "grpo_actor/update/entropy/avg": 0.4}
    ] * 4
    frame = events(tmp_path, rows)
    assert frame.framework == "areal"
    assert frame.series["completion/length"].values == pytest.approx(250)


def test_rolls_mask_that_is_off_is_no_share_of_truncated(tmp_path):
    common = {"critic/score/mean": 0.5, "tokens/response_length/mean": 300.0, "actor/approxkl@sum": 0.01}
    off = events(tmp_path / "off", [common | {"actor/max_len_mask_ratio": 1.0} for _ in range(20)])
    assert off.framework == "roll"
    assert "completion/truncated" in off.unavailable
    assert off.series["train/policy_kl"].values == pytest.approx(0.01)
    on = events(tmp_path / "on", [common | {"actor/max_len_mask_ratio": 0.9 - step / 100} for step in range(20)])
    assert on.series["completion/truncated"].values == pytest.approx(0.1 + np.arange(20) / 100)


def test_skyrl_with_how_values_were_put_together(tmp_path):
    rows = [
        {"policy/policy_entropy:mean": 0.5, "policy/loss_metrics/clip_ratio:mean": 0.01, "reward/avg_raw_reward": 0.4}
        | {"policy/response_length": 4096.0, "generate/avg_num_tokens": 300.0, "policy/raw_grad_norm": 0.3}
        for _ in range(4)
    ]
    frame = events(tmp_path, rows)
    assert frame.framework == "skyrl"
    assert frame.series["train/entropy"].values == pytest.approx(0.5)
    assert frame.series["train/clip_fraction"].values == pytest.approx(0.01)
    assert frame.series["completion/length"].values == pytest.approx(300)


def test_slime_in_tensorboard_has_one_axis(tmp_path):
    rows = []
    for rollout in range(10):
        rows.append((rollout, START + 20 * rollout, {"rollout/raw_reward": rollout / 10, "eval/aime": 0.5}))
        rows.append(
            (rollout, START + 20 * rollout + 1, {"eval/aime-truncated_ratio": 0.9, "eval/aime/response_len/mean": 7.0})
        )
        for part in range(4):
            values = {"train/entropy_loss": rollout + part / 10, "train/train_rollout_logprob_abs_diff": 0.01}
            rows.append((4 * rollout + part, START + 20 * rollout + 5 + part, values))
    event_file(tmp_path, rows)
    (frame,) = read(tmp_path)
    assert frame.framework == "slime"
    assert list(frame.series["train/entropy"].steps) == list(range(10))
    assert frame.series["train/entropy"].values == pytest.approx(np.arange(10) + 0.15)
    assert frame.series["eval/success"].values == pytest.approx(0.5)
    assert "zero_std/count" in frame.unavailable["train/zero_advantage_groups"].turn_on


def test_openrlhf_by_version(tmp_path):
    rows = [
        {"train/policy_loss": 0.1, "train/reward": 0.5, "train/actor_lr": 1e-6, "train/response_clip_ratio": 0.2}
    ] * 4
    frame = events(tmp_path, rows)
    assert frame.framework == "openrlhf"
    assert frame.series["completion/truncated"].values == pytest.approx(0.2)
    assert "entropy_coef 0" in frame.unavailable["train/entropy"].turn_on
    assert "2025-08-06" in frame.unavailable["train/behaviour_kl"].reason


def test_an_engines_own_metrics(tmp_path):
    (tmp_path / "vllm.prom").write_text("".join(vllm_scrape(index, preemptions=3 * index) for index in range(6)))
    (frame,) = read(tmp_path / "vllm.prom")
    assert frame.framework == "vllm"
    assert frame.series["engine/kv_usage"].values == pytest.approx(0.5)
    assert frame.series["engine/hit_rate"].values == pytest.approx(0.6)
    assert frame.series["engine/preemptions"].aggregate == "total"
    (tmp_path / "sglang.txt").write_text(SGLANG)
    (frame,) = read(tmp_path / "sglang.txt")
    assert frame.last_only
    assert frame.series["engine/hit_rate"].values == pytest.approx(0.75)


def test_the_same_keys_in_any_store(tmp_path):
    rows = [
        (step, START + 10 * step, {"reward/avg_raw_reward": m["reward"], "policy/policy_entropy": m["entropy"]})
        for step, m in enumerate(steps(30))
    ]
    (tmp_path / "events").mkdir()
    event_file(tmp_path / "events", rows)
    (tmp_path / "ml").mkdir()
    mlflow_run(tmp_path / "ml", rows)
    trackio(tmp_path / "project.db", {"run": [(step, values) for step, _, values in rows]})
    for path in (tmp_path / "events", tmp_path / "ml", tmp_path / "project.db"):
        (frame,) = read(path)
        assert frame.framework == "skyrl"
        assert frame.series["reward/mean"].values == pytest.approx(of("reward"), rel=1e-6)
