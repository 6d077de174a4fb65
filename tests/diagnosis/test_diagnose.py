"""What is said of runs whose fault is known, and of healthy ones. Thresholds are not tuned to these seeds."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.training_log import SICK, cut, frame, healthy, metrics_of
from springtide.diagnosis.diagnose import diagnose
from springtide.diagnosis.frame import Frame, Unavailable
from springtide.diagnosis.log import Note
from springtide.diagnosis.verdict import Verdict


def sick(found):
    return {each.id for each in found.symptoms if each.verdict is Verdict.SICK}


def symptom(found, name):
    return next(each for each in found.symptoms if each.id == name)


@pytest.mark.parametrize("seed", range(12))
def test_a_healthy_run_is_not_sick(seed):
    rng = np.random.default_rng(seed)
    first = rng.uniform(0.02, 0.7)
    run = healthy(
        rng,
        int(rng.choice([30, 60, 150, 400])),
        first=first,
        last=rng.uniform(first, 0.98),
        groups=int(rng.choice([2, 4, 8, 32])),
        size=int(rng.choice([4, 8, 16])),
        length=rng.uniform(10, 3000),
        entropy=float(rng.choice([0.05, 0.3, 1.0, 3.0])),
    )
    assert sick(diagnose(frame(run))) == set()


@pytest.mark.parametrize("name", SICK)
@pytest.mark.parametrize("dose", [0.7, 1.0])
def test_what_goes_wrong_is_found_with_its_cause(name, dose):
    make, cause = SICK[name]
    rng = np.random.default_rng(100)
    run = make(rng, healthy(rng, 120), 40, dose)
    found = diagnose(frame(run, checkpoints=(10, 20, 30, 40, 50, 60, 70)))
    ranked = [each.id for each in found.causes]
    if name == "length paid":
        assert found.verdict in (Verdict.SICK, Verdict.WATCH)
    else:
        assert found.verdict is Verdict.SICK
    assert not cause or cause in ranked[:3]
    assert all(each.check and each.remedy for each in found.causes[:3])
    assert all(each.evidence for each in found.symptoms if each.verdict is Verdict.SICK)


def test_a_collapse_is_dated_before_half_of_the_reward_is_lost_and_goes_back_to_before_it():
    rng = np.random.default_rng(1)
    run = SICK["entropy explosion"][0](rng, healthy(rng, 150, groups=16), 60, 1.0)
    found = diagnose(frame(run, checkpoints=tuple(range(0, 150, 10))))
    best = np.convolve(run["reward/mean"], np.ones(5) / 5, "valid")
    half = int(np.flatnonzero((best < best.max() / 2) & (np.arange(len(best)) > 60))[0]) + 5
    assert found.earliest_mover.metric == "train/entropy"
    assert 55 <= found.earliest_mover.step <= 75
    assert min(each.onset_step for each in found.symptoms if each.verdict is Verdict.SICK) < half
    assert found.rollback_step in (50, 60, 70)
    assert found.rollback_step < found.earliest_mover.step


def test_what_healed_is_no_longer_sick():
    rng = np.random.default_rng(3)
    run = healthy(rng, 120, first=0.7, last=0.8)
    dip = (np.arange(120) > 40) & (np.arange(120) < 60)
    run |= metrics_of(rng, np.where(dip, 0.05, 0.75), groups=8, size=8)
    run["train/entropy"] = np.where(dip, 4.0, run["train/entropy"])
    during = diagnose(cut(frame(run), 58))
    after = diagnose(frame(run))
    assert "S06" in sick(during)
    assert sick(after) == set()
    assert symptom(after, "S06").verdict is Verdict.WATCH
    assert "no longer" in symptom(after, "S06").evidence[-1].text


def test_truncation_that_the_reward_does_not_mind_is_watched():
    rng = np.random.default_rng(4)
    run = healthy(rng, 80, first=0.85, last=0.9)
    run["completion/truncated"] = np.where(np.arange(80) < 20, 0.02, 1.0)
    run["completion/length"] = np.where(np.arange(80) < 20, 250.0, 512.0)
    run["train/entropy"] = run["train/entropy"] * np.where(np.arange(80) < 20, 1, 0.05)
    found = diagnose(frame(run))
    assert found.verdict is Verdict.WATCH
    assert symptom(found, "S35").verdict is Verdict.WATCH


def test_rewards_that_are_copies_are_told_from_saturated_ones():
    rng = np.random.default_rng(5)
    run = healthy(rng, 60)
    share = np.clip(rng.normal(0.5, 0.12, 60), 0, 1)
    copies = run | {
        "reward/mean": share,
        "reward/success": share,
        "reward/std": np.zeros(60),
        "train/zero_advantage_groups": np.ones(60),
        "train/grad_norm": np.zeros(60),
    }
    found = diagnose(frame(copies))
    assert "S10" in sick(found)
    assert found.causes[0].id in ("duplicated-seeds", "reward-broadcast")
    easy = healthy(rng, 60, first=0.95, last=0.97)
    found = diagnose(frame(easy))
    assert found.verdict is Verdict.WATCH
    assert found.causes[0].id == "tasks-too-easy"


def test_a_loss_that_is_not_finite_is_sick_from_there_on():
    run = healthy(np.random.default_rng(6), 60)
    run["train/loss"][40:] = np.nan
    found = diagnose(frame(run, checkpoints=(30, 50)))
    assert symptom(found, "S29").onset_step == 41
    assert found.rollback_step == 30


@pytest.mark.parametrize(("metric", "verdict"), [("reward/mean", "SICK"), ("completion/length", "WATCH")])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_metric_that_stays_not_finite_is_told(metric, verdict, value):
    metrics = healthy(np.random.default_rng(1), 150)
    metrics[metric][100:] = value
    found = symptom(diagnose(frame(metrics)), "S29")
    assert (found.verdict, found.onset_step) == (verdict, 101)


def test_gaps_of_a_table_are_no_loss():
    metrics = healthy(np.random.default_rng(1), 150)
    metrics["reward/mean"][[20, 21, 60, 100, 101]] = np.nan
    assert symptom(diagnose(frame(metrics)), "S29").verdict == "OK"


@pytest.mark.parametrize("glitch", [5.0, 150.0, 1e8])
@pytest.mark.parametrize("seed", range(3))
def test_a_single_glitch_of_the_reward_makes_no_run_sick(glitch, seed):
    metrics = healthy(np.random.default_rng(seed), 150)
    metrics["reward/mean"][100] = glitch
    assert not sick(diagnose(frame(metrics)))


def test_a_useless_critic():
    rng = np.random.default_rng(7)
    run = healthy(rng, 60, first=0.3, last=0.31)
    run["critic/explained_variance"] = rng.normal(-0.2, 0.1, 60)
    found = diagnose(frame(run))
    assert "S60" in sick(found)
    assert found.causes[0].id == "critic-useless"


def test_a_guard_keeps_a_rule_from_speaking():
    run = healthy(np.random.default_rng(8), 40)
    run["train/clip_fraction"] = np.full(40, 0.6)
    assert symptom(diagnose(frame(run)), "S26").verdict is Verdict.WATCH
    found = diagnose(frame(run, settings={"loss": "gspo"}))
    assert "S26" not in {each.id for each in found.symptoms}
    assert "by design" in found.not_checked["S26"]


# -- when nothing can be said


def test_a_run_of_12_steps_is_insufficient():
    found = diagnose(frame(healthy(np.random.default_rng(9), 12)))
    assert found.verdict is Verdict.INSUFFICIENT
    assert "takes 30" in found.not_checked["S02"]


def test_last_values_tell_no_trend():
    run = {name: values[-1:] for name, values in healthy(np.random.default_rng(10), 40).items()}
    found = diagnose(frame(run, last_only=True))
    assert found.verdict is Verdict.INSUFFICIENT
    assert "no history" in found.not_checked["S06"]


def test_a_run_without_rows_is_insufficient_and_says_its_error():
    empty = Frame(Path("run"), "trl", {}, rows=0, error="OSError: no route to hub", notes=(Note(text="No rows."),))
    found = diagnose(empty)
    assert found.verdict is Verdict.INSUFFICIENT
    assert found.notes == ("No rows.",)


def test_without_the_key_metrics_the_setting_to_switch_on_is_named():
    run = {"train/loss": np.zeros(50), "step/seconds": np.full(50, 3.0)}
    missing = {"reward/mean": Unavailable("reward/mean", "it was not logged", "report_to = 'wandb'")}
    found = diagnose(frame(run, unavailable=missing))
    assert found.verdict is Verdict.UNAVAILABLE
    assert found.unavailable[0].turn_on == "report_to = 'wandb'"
    assert "report_to" in found.not_checked["S06"]
    assert symptom(found, "S06").verdict is Verdict.UNAVAILABLE


def test_a_missing_metric_is_not_taken_for_zero():
    run = healthy(np.random.default_rng(11), 60)
    for name in ("train/reference_kl", "train/grad_norm", "completion/truncated", "eval/success"):
        del run[name]
    found = diagnose(frame(run))
    assert sick(found) == set()
    assert symptom(found, "S24").verdict is Verdict.UNAVAILABLE


def test_a_crash_before_the_planned_end_is_sick():
    run = frame(healthy(np.random.default_rng(12), 30), settings={"steps": 200}, error="torch.OutOfMemoryError: CUDA")
    found = diagnose(run)
    assert "S58" in sick(found)
    assert found.causes[0].id == "out-of-memory"


# -- properties


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10_000),
    level=st.floats(-5, 50),
    spread=st.floats(0.001, 2),
    memory=st.sampled_from([0.0, 0.5]),
    count=st.integers(5, 200),
)
def test_a_stationary_reward_of_any_level_is_not_sick(seed, level, spread, memory, count):
    rng = np.random.default_rng(seed)
    values, now = np.zeros(count), 0.0
    for at in range(count):
        now = memory * now + np.sqrt(1 - memory**2) * rng.normal()
        values[at] = level + spread * now
    assert sick(diagnose(frame({"reward/mean": values}))) == set()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.01, 3.0, 1000.0]))
def test_units_of_length_and_time_do_not_matter(seed, scale):
    rng = np.random.default_rng(seed)
    run = SICK["length collapse"][0](rng, healthy(rng, 100), 40, 1.0)
    other = run | {"completion/length": run["completion/length"] * scale, "step/seconds": run["step/seconds"] * scale}
    one, two = diagnose(frame(run)), diagnose(frame(other))
    assert [(each.id, each.verdict, each.onset_step) for each in one.symptoms] == [
        (each.id, each.verdict, each.onset_step) for each in two.symptoms
    ]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), name=st.sampled_from(sorted(SICK)), at=st.integers(45, 110))
def test_later_rows_move_no_onset_to_before_what_was_known(seed, name, at):
    """Nothing that was not there at a step is later said to have been seen by then."""
    rng = np.random.default_rng(seed)
    whole = frame(SICK[name][0](rng, healthy(rng, 120), 40, 1.0))
    then = {each.id for each in diagnose(cut(whole, at)).symptoms if each.onset_step is not None}
    for later in diagnose(whole).symptoms:
        if later.seen_step is not None and later.seen_step <= at:
            assert later.id in then, later
