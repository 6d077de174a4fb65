"""Predictions equal what is counted when the thing is played out."""

import json

import numpy as np
import pytest

from springtide.core.errors import UsageError
from springtide.diagnosis.preflight.base import Base, TaskRate, base_of_rate, read_base
from springtide.diagnosis.preflight.signal import predict, smallest_group
from springtide.diagnosis.preflight.truncation import of_lengths, of_quantiles


def test_one_rate_is_the_formula():
    found = predict(base_of_rate("0.3"), 8)
    assert found.share == pytest.approx(0.3**8 + 0.7**8)
    assert (found.all_right, found.all_wrong) == pytest.approx((0.3**8, 0.7**8))


def test_a_spread_over_tasks_makes_more_groups_silent():
    rng = np.random.default_rng(1)
    mean, spread = 0.3, 0.25
    strength = mean * (1 - mean) / spread**2 - 1
    rates = rng.beta(mean * strength, (1 - mean) * strength, 200_000)
    right = rng.binomial(8, rates)
    played = np.mean((right == 0) | (right == 8))
    found = predict(base_of_rate("0.3:0.25"), 8)
    assert found.share == pytest.approx(played, abs=0.005)
    assert found.share > predict(base_of_rate("0.3"), 8).share


@pytest.mark.parametrize("attempts", [4, 8, 32])
def test_rates_from_few_attempts_do_not_exaggerate(attempts):
    """Taken as they are, rates of 0 and 1 out of four attempts would predict far more silent groups than there are."""
    rng = np.random.default_rng(2)
    rates = rng.beta(2.0, 3.0, 1500)
    right = rng.binomial(attempts, rates)
    truth = float(np.mean(rates**8 + (1 - rates) ** 8))
    found = predict(Base(tasks=tuple(TaskRate(k / attempts, attempts) for k in right)), 8)
    assert found.share == pytest.approx(truth, abs=0.03)
    assert found.low < truth < found.high
    if attempts == 4:
        naive = float(np.mean((right / 4) ** 8 + (1 - right / 4) ** 8))
        assert naive > truth + 0.08


def test_the_smallest_group_that_carries_enough():
    assert smallest_group(base_of_rate("0.5"), 0.5) == 2
    assert smallest_group(base_of_rate("0.1"), 0.5) == 8
    assert smallest_group(base_of_rate("0.001"), 0.5) is None


def test_nothing_known_predicts_nothing():
    assert predict(Base(), 8) is None


@pytest.mark.parametrize("text", ["1.2", "-0.1", "many", "0.3:0.6", "0.3:x", ":0.1", "nan"])
def test_rates_that_are_none_are_refused(text):
    with pytest.raises(UsageError, match="--pass-rate"):
        base_of_rate(text)


def test_tables_in_the_forms_that_people_keep(tmp_path):
    (tmp_path / "a.csv").write_text("task,correct,attempts,tokens\nx,2,8,100\ny,8,8,200\n")
    (tmp_path / "b.json").write_text(json.dumps([{"pass_rate": 0.25}, {"pass_rate": 1.0}]))
    (tmp_path / "c.jsonl").write_text('{"rewards": [1, 0, 0, 0]}\n{"rewards": [1.0, 1.0]}\n')
    by_count, by_rate, by_rewards = (read_base(tmp_path / name) for name in ("a.csv", "b.json", "c.jsonl"))
    assert by_count.tasks == (TaskRate(0.25, 8), TaskRate(1.0, 8))
    assert by_count.lengths == (100.0, 200.0)
    assert by_rate.tasks == (TaskRate(0.25), TaskRate(1.0))
    assert by_rewards.tasks == (TaskRate(0.25, 4), TaskRate(1.0, 2))


def test_completions_of_the_base_model_say_everything(tmp_path):
    rows = [
        {"prompt": f"q{task}", "completion": "a", "reward": float(task > member), "num_tokens": 50, "format": 1.0}
        for task in range(3)
        for member in range(4)
    ]
    (tmp_path / "base.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_base(tmp_path / "base.jsonl")
    assert found.tasks == (TaskRate(0.0, 4), TaskRate(0.25, 4), TaskRate(0.5, 4))
    assert found.lengths == (50.0,) * 12
    assert found.components["format"] == (1.0,) * 12


def test_a_table_of_something_else_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="a column pass_rate"):
        read_base(tmp_path / "x.csv")
    with pytest.raises(UsageError, match="no such file"):
        read_base(tmp_path / "y.csv")


def test_truncation_from_lengths_and_from_quantiles_agree():
    lengths = tuple(np.random.default_rng(0).lognormal(np.log(300), 0.6, 5000))
    counted = of_lengths(lengths, 600)
    drawn = of_quantiles(f"{np.quantile(lengths, 0.5)}:{np.quantile(lengths, 0.95)}", 600)
    assert counted.share == pytest.approx(drawn.share, abs=0.02)
    assert counted.low < drawn.share < counted.high
    assert np.mean(np.array(lengths) < counted.enough) >= 0.99


def test_few_lengths_say_nothing_and_wrong_quantiles_are_refused():
    assert of_lengths((1.0,) * 10, 5) is None
    for text in ("300", "1200:300", "0:5", "a:b"):
        with pytest.raises(UsageError, match="--answer-tokens"):
            of_quantiles(text, 100)
