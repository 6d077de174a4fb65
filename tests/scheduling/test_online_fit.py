"""Coefficients that go along with what is measured."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.scheduling.online_fit import MOST, NOISE, OnlineFit

FOR_EVER = 1e12


def test_one_coefficient_after_one_observation():
    """In logarithms the mean of prior (+- 1) and observation (+- 0.3), weighted by 1 / variance."""
    fit = OnlineFit([2.0], half_life=FOR_EVER)
    fit.observe([10], 30.0)
    weight = 1 / NOISE**2
    assert fit.coefficients == [pytest.approx(2.0 * 1.5 ** (weight / (1 + weight)))]
    assert fit.predict([10]) == pytest.approx(10 * fit.coefficients[0])


def test_a_factor_is_shared_out_by_shares_of_the_prediction():
    """Of 4 s by the prior, 3 s are the first kind's; the gain of each is its share over (noise + sum of squares)."""
    fit = OnlineFit([1.0, 1.0], half_life=FOR_EVER)
    fit.observe([3, 1], 8.0)
    whole = NOISE**2 + 0.75**2 + 0.25**2
    assert fit.coefficients == [pytest.approx(2 ** (0.75 / whole)), pytest.approx(2 ** (0.25 / whole))]


def test_without_forgetting_it_is_the_geometric_mean_of_all():
    fit, times = OnlineFit([1.0], half_life=FOR_EVER, doubt=1e6), [1.0, 2.0, 4.0, 4.0]
    for seconds in times:
        fit.observe([1], seconds)
    assert fit.coefficients == [pytest.approx(math.prod(times) ** 0.25)]


@pytest.mark.parametrize("factor", [0.2, 0.5, 2.0, 20.0])
def test_what_differs_from_visit_to_visit_is_found(factor):
    true, r = (0.01, 0.0005, 1e-6), random.Random(0)
    fit = OnlineFit([factor * each for each in true], half_life=200)
    for _ in range(3000):
        amounts = (r.randint(1, 16), r.randint(1, 500), r.randint(100, 100_000))
        fit.observe(amounts, sum(a * b for a, b in zip(true, amounts, strict=True)))
    assert fit.coefficients == pytest.approx(true, rel=0.01)


def test_what_always_comes_in_the_same_proportion_is_off_by_the_same_in_each_part():
    fit = OnlineFit([1.0, 3.0], half_life=10)
    for _ in range(200):
        fit.observe([3, 1], 12.0)
    assert fit.coefficients == pytest.approx([2.0, 6.0]), "both parts took 3 s by the prior"


def test_what_is_not_seen_for_long_is_not_forgotten():
    fit = OnlineFit([1.0, 1.0], half_life=10)
    for _ in range(100):
        fit.observe([0, 1], 3.0)
    for _ in range(20_000):
        fit.observe([1, 0], 2.0)
    assert fit.coefficients == [pytest.approx(2.0), pytest.approx(3.0, rel=0.01)]


@pytest.mark.parametrize("factor", [1.1, 10.0, 0.1])
def test_after_a_half_life_half_of_a_change_has_been_learned_whatever_it_is(factor):
    fit = OnlineFit([1.0], half_life=50)
    for _ in range(1000):
        fit.observe([1], 1.0)
    for _ in range(50):
        fit.observe([1], factor)
    assert math.log(fit.coefficients[0]) == pytest.approx(math.log(factor) / 2, rel=0.05)


def drifted(common, visits):
    """Coefficients after all work has become half as long again for so many visits, as ratios to the right ones."""
    true, r = (0.01, 0.0005, 1e-6, 0.02), random.Random(0)
    fit = OnlineFit(true, half_life=500, common=common)
    for visit in range(4000 + visits):
        amounts = (16, r.choice((0, 0, 50, 200)), 16 * r.randint(30_000, 50_000), 0)
        seconds = sum(a * b for a, b in zip(true, amounts, strict=True))
        fit.observe(amounts, seconds * (1.5 if visit >= 4000 else 1.0))
    return [found / (1.5 * right) for found, right in zip(fit.coefficients, true, strict=True)]


def test_a_host_that_gets_slower_makes_all_that_was_seen_dearer_by_the_same_factor():
    ratios = drifted(100, 400)
    assert ratios[:3] == pytest.approx([1.0, 1.0, 1.0], rel=0.2)
    assert ratios[3] == pytest.approx(1 / 1.5), "never seen"
    assert min(drifted(None, 400)) < 0.2, "the base takes the blame, though it became dearer too"


def test_a_stall_counts_no_more_than_a_factor_of_twenty():
    found = []
    for seconds in (20.0, 1e3, 1e9):
        fit = OnlineFit([1.0], half_life=500)
        for _ in range(3000):
            fit.observe([1], 1.0)
        fit.observe([1], seconds)
        found += fit.coefficients
    assert found[1] == found[2]
    assert found[2] - 1 < 0.005
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_some_stalls_among_many_visits_move_little():
    fit, r = OnlineFit([1.0], half_life=500), random.Random(0)
    for _ in range(5000):
        fit.observe([1], r.lognormvariate(0.0, 0.2) * (100.0 if r.random() < 0.02 else 1.0))
    assert 1.0 < fit.coefficients[0] < 1.2, "the mean of all is 3"


def test_what_costs_nothing_by_the_prior_is_nothing():
    fit = OnlineFit([0.0, 1.0], half_life=10)
    for _ in range(100):
        fit.observe([5, 1], 3.0)
    assert fit.coefficients == [0.0, pytest.approx(3.0, rel=1e-3)]
    fit.observe([5, 0], 3.0)
    assert fit.coefficients == [0.0, pytest.approx(3.0, rel=1e-3)], "nothing that it knows of took these seconds"


def test_what_costs_nothing_by_measurement_vanishes_from_predictions():
    fit = OnlineFit([1.0, 1.0], half_life=50)
    for _ in range(2000):
        fit.observe([1, 1], 1.0)
        fit.observe([1, 0], 1.0)
    assert fit.coefficients[0] == pytest.approx(1.0, abs=0.02)
    assert 0 < fit.coefficients[1] < 0.05


SCALE = st.floats(-9, 9).map(lambda power: 10.0**power)
WORK = st.lists(
    st.tuples(st.lists(st.integers(0, 10**6), min_size=3, max_size=3), SCALE | st.just(0.0)), min_size=1, max_size=30
)


@settings(max_examples=300, deadline=None)
@given(st.lists(SCALE | st.just(0.0), min_size=3, max_size=3), WORK, st.floats(1, 1e4), st.sampled_from([1.0, 3.0]))
def test_coefficients_are_never_negative_and_what_was_not_done_keeps_its_own(prior, work, half_life, doubt):
    fit = OnlineFit(prior, half_life=half_life, doubt=doubt)
    for amounts, seconds in work:
        fit.observe(amounts, seconds)
        assert all(math.isfinite(each) and each >= 0 for each in fit.coefficients)
    for kind in range(3):
        if not any(amounts[kind] for amounts, _ in work):
            assert fit.coefficients[kind] == pytest.approx(prior[kind], rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(SCALE, SCALE, st.integers(1, 10**6), st.integers(0, 50), SCALE | st.just(0.0))
def test_one_outlier_moves_a_coefficient_by_a_bounded_factor(true, prior, amount, before, outlier):
    """Whatever it takes, whatever was thought before, and after however many observations."""
    fit = OnlineFit([prior], half_life=100)
    for _ in range(before):
        fit.observe([amount], true * amount)
    was = fit.coefficients[0]
    fit.observe([amount], was * amount * outlier)
    gain = 1 / (1 + before * 0.99)  # at most; what is known has lost half a percent per observation
    assert abs(math.log(fit.coefficients[0] / was)) <= MOST * min(1.0, 1.5 * gain)


@settings(max_examples=50, deadline=None)
@given(SCALE, SCALE)
def test_units_do_not_matter(unit, seconds):
    """Tokens by the million, or hours in the place of seconds: the same is learned."""
    plain, scaled = OnlineFit([1.0, 2.0], half_life=20), OnlineFit([seconds / unit, 2.0 * seconds], half_life=20)
    r = random.Random(1)
    for _ in range(40):
        first, second, took = r.randint(0, 9), r.randint(1, 9), r.uniform(1, 50)
        plain.observe([first, second], took)
        scaled.observe([first * unit, second], took * seconds)
    assert scaled.coefficients == pytest.approx(
        [plain.coefficients[0] * seconds / unit, plain.coefficients[1] * seconds], rel=1e-6
    )
