import numpy as np
import pytest

from doctor import below
from doctor_support.labels import RUN_LOGS, Label, present, read_labels
from doctor_support.score import examine, figures, lost
from fakes.training_log import SICK, frame, healthy
from springtide.core.errors import UsageError


def outcome(name, *, seed=0, **label):
    rng = np.random.default_rng(seed)
    run = healthy(rng, 120)
    if name:
        run = SICK[name][0](rng, run, 40, 1.0)
    return examine(Label(path=name or "healthy", **label), [frame(run)])


def test_what_is_found_and_what_is_made_up():
    outcomes = [
        outcome("reward zero", verdict="SICK", symptoms=("S01",), cause="reward-always-zero"),
        outcome("stale weights", verdict="SICK", symptoms=("S60",), cause="critic-useless"),
        outcome("", verdict="OK"),
        outcome("temperature", verdict="OK"),
    ]
    told = figures(outcomes)
    assert told["recall"] == 0.5
    assert told["sick_recall"] == 1.0
    assert (told["false_sick"], told["healthy_runs"]) == (1, 2)
    assert told["first_cause"] == 0.5
    missed = below(told | {"held_out": told})
    assert any("1 healthy runs" in each for each in missed)
    assert any("recall" in each for each in missed)


def test_loss_is_that_of_the_reward_until_a_step():
    values = np.concatenate((np.full(40, 0.8), np.full(40, 0.2)))
    run = frame({"reward/mean": values})
    assert lost(run, 40) == pytest.approx(0)
    assert lost(run, 80) == pytest.approx(0.75)


def test_labels_of_logs_that_are_there(tmp_path):
    labels = read_labels(RUN_LOGS)
    assert {each.verdict for each in labels} >= {"SICK", "WATCH", "INSUFFICIENT"}
    assert list(present(labels, tmp_path)) == []
    (tmp_path / "index.toml").write_text("[[log]]\nverdict = 'SICK'\n")
    with pytest.raises(UsageError, match="no index of labelled logs"):
        read_labels(tmp_path / "index.toml")
