import numpy as np
import pytest

from springtide.diagnosis.condition import ask
from springtide.diagnosis.facts import Track
from springtide.diagnosis.rule import Condition, rules

NOISY = 0.5 + 0.02 * np.random.default_rng(0).normal(size=60)


def holds(values, *, settings=None, other=None, **condition):
    values = np.asarray(values, dtype=float)
    tracks = {"m": Track("m", np.arange(len(values)), values)}
    if other is not None:
        tracks["o"] = Track("o", np.arange(len(other)), np.asarray(other, dtype=float))
        condition["other"] = "o"
    return ask(Condition(metric="m", **condition), tracks, settings or {})


def first(answer):
    return int(answer.since[np.argmax(answer.holds)]) if answer.holds.any() else None


def step(level, *, after=40, count=60, base=NOISY):
    return np.where(np.arange(count) < after, base, level + (base - 0.5))


@pytest.mark.parametrize(
    ("values", "condition", "onset"),
    [
        (step(0.9), {"test": "above", "value": 0.8}, 40),
        (step(0.1), {"test": "below", "value": 0.2}, 40),
        (step(1.6), {"test": "above_start", "value": 3.0}, 40),
        (step(0.05), {"test": "below_start", "value": 0.2}, 40),
        (step(0.7), {"test": "above_noise", "value": 4.0}, 40),
        (step(0.3), {"test": "below_noise", "value": 4.0}, 40),
        (step(0.1), {"test": "below_peak", "value": 0.5}, 41),
        (np.where(np.arange(60) < 40, NOISY, 0.0), {"test": "zero", "run": 5}, 40),
        (np.where(np.arange(60) < 40, NOISY, 0.3), {"test": "constant", "run": 5}, 41),
        (np.where(np.arange(60) == 40, 9.0, NOISY), {"test": "spike", "value": 10}, 40),
        (np.where(np.arange(60) < 40, NOISY, np.nan), {"test": "not_finite"}, 40),
        (np.r_[np.linspace(1, 0.1, 40), np.full(20, 1.0)], {"test": "saw_tooth"}, 40),
        (NOISY, {"test": "at_start_above", "value": 0.4, "smooth": 3}, 2),
        (NOISY, {"test": "at_start_below", "value": 0.6, "smooth": 3}, 2),
        (NOISY, {"test": "logged"}, 0),
    ],
)
def test_holds_from_where_it_began(values, condition, onset):
    assert first(holds(values, **condition)) == onset


@pytest.mark.parametrize(
    ("values", "condition"),
    [
        (np.linspace(0.1, 0.9, 60) + NOISY, {"test": "rising"}),
        (np.linspace(0.9, 0.1, 60) + NOISY, {"test": "falling"}),
        (NOISY, {"test": "flat"}),
        (np.exp(np.arange(60) / 5) * NOISY, {"test": "growing"}),
        (NOISY, {"test": "above_other", "value": 2.0, "other": np.full(60, 0.1)}),
        (NOISY, {"test": "below_other", "value": 0.5, "other": np.full(60, 2.0)}),
        (NOISY, {"test": "with", "value": 0.5, "other": 3 * NOISY}),
        (NOISY, {"test": "against", "value": 0.5, "other": -NOISY}),
        (np.zeros(60), {"test": "zeros_beyond", "other": np.tile([0.2, 0.3, 0.4], 20)}),
    ],
)
def test_holds_over_many_values_and_not_of_noise(values, condition):
    condition = dict(condition)
    other = condition.pop("other", None)
    assert holds(values, other=other, **condition).holds.any()
    steady = np.random.default_rng(5).normal(0.3, 0.02, 60)
    if condition["test"] != "flat":
        assert not holds(steady, other=None if other is None else np.full(60, 0.3), **condition).holds.any()


def test_every_test_is_answered():
    asked = {each.test for rule in rules() for detection in rule.detect for each in detection.when}
    assert {"above", "below_peak", "zeros_beyond", "is", "with"} <= asked
    for condition in (each for rule in rules() for detection in rule.detect for each in detection.when):
        tracks = {name: Track(name, np.arange(60), NOISY) for name in (condition.metric, condition.other) if name}
        answer = ask(condition, tracks, {condition.setting: 1})
        assert answer is not None
        assert len(answer.holds) == len(answer.steps)


def test_what_is_not_logged_is_not_answered():
    assert ask(Condition(metric="n", test="zero"), {}, {}) is None
    assert ask(Condition(setting="temperature", test="above"), {}, {}) is None
    assert holds([np.nan] * 9, test="zero") is None


def test_a_share_of_zeros_that_chance_explains_is_none():
    rng = np.random.default_rng(0)
    agree = np.full(60, 0.8)
    gradient = np.where(rng.random(60) < 0.8, 0.0, 1.0)
    assert not holds(gradient, other=agree, test="zeros_beyond").holds.any()


def test_within_keeps_it_for_a_while_and_negate_turns_it():
    once = np.where(np.arange(30) == 10, 1.0, 0.0)
    answer = holds(once, test="above", value=0.5, run=1, within=5)
    assert np.flatnonzero(answer.holds).tolist() == [10, 11, 12, 13, 14, 15]
    assert holds(once, test="above", value=0.5, run=1, negate=True).holds.sum() == 29


def test_settings():
    def asked(**condition):
        return bool(ask(Condition(setting="lr", **condition), {}, {"lr": "1e-5"}).holds[0])

    assert asked(test="above", value=1e-6)
    assert not asked(test="below", value=1e-6)
    assert asked(test="is", values=("1e-5", 1e-5))
