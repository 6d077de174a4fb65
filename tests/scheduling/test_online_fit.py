"""Coefficients that go along with what is measured."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.scheduling.online_fit import LEAST, NOISE, STALL, OnlineFit


def predicted(fit, *amounts):
    return sum(coefficient * amount for coefficient, amount in zip(fit.coefficients, amounts, strict=True))


def test_one_coefficient_after_one_observation():
    """The mean of prior (1 +- 1) and observation (1.5 +- 0.3), weighted by 1 / variance."""
    fit = OnlineFit([2.0], half_life=math.inf)
    fit.observe([10], 30.0)
    weight = 1 / NOISE**2
    assert fit.coefficients == [pytest.approx(2.0 * (1 + weight * 1.5) / (1 + weight))]


def test_without_forgetting_it_is_the_mean_of_prior_and_observations():
    fit = OnlineFit([1.0], half_life=math.inf)
    # Each is as heavy as its prediction says that it is exact: all weigh the same as long as predictions hardly change.
    for seconds in (100.1, 99.9, 100.2, 99.8):
        fit.observe([100], seconds)
    assert fit.coefficients == [pytest.approx(1.0, abs=1e-4)]


@pytest.mark.parametrize("factor", [0.2, 0.5, 2.0, 20.0])
def test_what_differs_from_visit_to_visit_is_found(factor):
    true, r = (0.01, 0.0005, 1e-6), random.Random(0)
    fit = OnlineFit([factor * each for each in true], half_life=200)
    for _ in range(3000):
        amounts = (r.randint(1, 16), r.randint(1, 500), r.randint(100, 100_000))
        fit.observe(amounts, sum(a * b for a, b in zip(true, amounts, strict=True)))
    assert fit.coefficients == pytest.approx(true, rel=0.01)


def test_what_always_comes_in_the_same_proportion_keeps_its_proportion():
    fit = OnlineFit([1.0, 3.0], half_life=10)
    for _ in range(200):
        fit.observe([3, 1], 12.0)
    first, second = fit.coefficients
    assert predicted(fit, 3, 1) == pytest.approx(12.0)
    assert second / first == pytest.approx(3.0), "both parts took 3 s by the prior, so that both are doubled"


def test_what_is_not_seen_for_long_is_not_forgotten():
    fit = OnlineFit([1.0, 1.0], half_life=10)
    for _ in range(100):
        fit.observe([0, 1], 3.0)
    for _ in range(100_000):
        fit.observe([1, 0], 2.0)
    assert fit.coefficients == [pytest.approx(2.0), pytest.approx(3.0, rel=0.01)]


def test_after_its_half_life_half_of_a_change_has_been_learned():
    fit = OnlineFit([1.0], half_life=50)
    for _ in range(1000):
        fit.observe([1], 1.0)
    for _ in range(50):
        fit.observe([1], 1.1)
    assert fit.coefficients == [pytest.approx(1.05, abs=0.003)]


def test_a_longer_stall_moves_a_coefficient_less():
    moved = []
    for seconds in (2.0, 10.0, 100.0, 1e6):
        fit = OnlineFit([1.0], half_life=100)
        for _ in range(1000):
            fit.observe([1], 1.0)
        fit.observe([1], seconds)
        moved.append(fit.coefficients[0] - 1)
    assert moved == sorted(moved, reverse=True)
    assert moved[0] < 0.01
    assert moved[-1] < 1e-5


def test_what_costs_nothing_by_the_prior_is_nothing():
    fit = OnlineFit([0.0, 1.0], half_life=10)
    for _ in range(100):
        fit.observe([5, 1], 3.0)
    assert fit.coefficients == [0.0, pytest.approx(3.0, rel=1e-3)]
    fit.observe([5, 0], 3.0)
    assert fit.coefficients == [0.0, pytest.approx(3.0, rel=1e-3)], "nothing that it knows of took these seconds"


def test_what_would_be_negative_leaves_the_others_right():
    fit = OnlineFit([1.0, 1.0], half_life=50)
    for _ in range(200):
        fit.observe([1, 1], 1.0)
        fit.observe([1, 0], 1.2)
    first, second = fit.coefficients
    assert second == LEAST
    assert 1.0 < first < 1.2


SCALE = st.floats(-9, 9).map(lambda power: 10.0**power)
WORK = st.lists(st.tuples(st.lists(st.integers(0, 10**6), min_size=3, max_size=3), SCALE), min_size=1, max_size=30)


@settings(max_examples=300, deadline=None)
@given(st.lists(SCALE | st.just(0.0), min_size=3, max_size=3), WORK, st.floats(1, 1e4))
def test_coefficients_are_never_negative_and_what_was_not_done_keeps_its_own(prior, work, half_life):
    fit = OnlineFit(prior, half_life=half_life)
    for amounts, seconds in work:
        fit.observe(amounts, seconds)
        assert all(math.isfinite(each) and each >= 0 for each in fit.coefficients)
    never = [kind for kind in range(3) if not any(amounts[kind] for amounts, _ in work)]
    for kind in never:
        assert fit.coefficients[kind] == pytest.approx(prior[kind], rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(SCALE, SCALE, st.integers(1, 10**6), st.integers(0, 50), st.floats(0, 12), st.booleans())
def test_one_outlier_moves_a_coefficient_by_a_bounded_amount(true, prior, amount, before, power, longer):
    """Whatever was known before, and whatever it is: by less than `BOUND` of itself or of the prior."""
    fit = OnlineFit([prior], half_life=100)
    for _ in range(before):
        fit.observe([amount], true * amount)
    was = fit.coefficients[0]
    fit.observe([amount], was * amount * 10.0 ** (power if longer else -power))
    assert abs(fit.coefficients[0] - was) <= BOUND * max(was, prior)


BOUND = STALL / 2 / NOISE + 1
"""The step is P r e / (R + P r^2) for an error e < STALL: at most STALL sqrt(P / R) / 2, with P at most the prior's."""
