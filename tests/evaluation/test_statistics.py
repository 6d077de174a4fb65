import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.evaluation.count import Count, pooled
from springtide.evaluation.statistics import difference, rate_interval, wilson

COUNTS = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def test_wilson_by_hand():
    """81 of 263: (0.30798 + 0.0073 -/+ ...) / 1.01461 gives 0.2553 to 0.3662 (Newcombe 1998a, table I)."""
    interval = wilson(81, 263)
    assert interval.estimate == pytest.approx(81 / 263)
    assert (round(interval.low, 4), round(interval.high, 4)) == (0.2553, 0.3662)


def test_wilson_at_the_borders():
    """No success: high = z^2 / (n + z^2) = 3.8415 / 13.8415; and the mirror of it."""
    none, all_of_them = wilson(0, 10), wilson(10, 10)
    assert (none.low, round(none.high, 4)) == (0.0, 0.2775)
    assert (round(all_of_them.low, 4), all_of_them.high) == (0.7225, 1.0)


def test_no_valid_episode_has_no_interval():
    assert wilson(0, 0) is None
    assert rate_interval(Count(0, 0, invalid=5)) is None
    assert difference(Count(0, 0), Count(1, 2)) is None


def test_difference_of_independent_rates_by_hand():
    """56/70 - 48/80 = 0.2, interval 0.0524 to 0.3339 (Newcombe 1998b, table II)."""
    interval = difference(Count(48, 80), Count(56, 70))
    assert interval.estimate == pytest.approx(0.2)
    assert (round(interval.low, 4), round(interval.high, 4)) == (0.0524, 0.3339)


def test_invalid_episodes_stand_beside_and_never_inside():
    with_invalid, without = Count(30, 100, invalid=50), Count(30, 100)
    assert with_invalid.rate == without.rate == 0.3
    assert rate_interval(with_invalid) == rate_interval(without)


def test_pooling_adds_episodes_not_rates():
    assert pooled([Count(1, 10, 1), Count(90, 90, 2)]) == Count(91, 100, 3)
    assert pooled([]).rate is None


@pytest.mark.parametrize("arguments", [(3, 2), (-1, 2), (0, 0, -1)])
def test_an_impossible_count_is_refused(arguments):
    with pytest.raises(ValueError, match="are no count"):
        Count(*arguments)


@given(COUNTS, st.floats(0.5, 0.999))
def test_wilson_stays_inside_and_around_the_estimate(count, confidence):
    k, n = count
    interval = wilson(k, n, confidence=confidence)
    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    mirrored = wilson(n - k, n, confidence=confidence)
    assert mirrored.low == pytest.approx(1 - interval.high, abs=1e-12)


@given(COUNTS)
def test_wilson_solves_the_score_equation(count):
    """At each bound p inside (0, 1) the observed rate is z standard errors of p away."""
    k, n = count
    interval = wilson(k, n)
    for bound in (interval.low, interval.high):
        if 0 < bound < 1:
            assert abs(k / n - bound) == pytest.approx(1.959964 * math.sqrt(bound * (1 - bound) / n), rel=1e-5)


@given(COUNTS, st.integers(2, 20))
def test_more_of_the_same_narrows_the_interval(count, times):
    k, n = count
    few, many = wilson(k, n), wilson(k * times, n * times)
    assert many.high - many.low < few.high - few.low


@given(COUNTS, COUNTS)
def test_a_difference_is_around_its_estimate_and_antisymmetric(one, two):
    forward, backward = difference(Count(*one), Count(*two)), difference(Count(*two), Count(*one))
    assert -1 <= forward.low <= forward.estimate <= forward.high <= 1
    assert backward.low == pytest.approx(-forward.high, abs=1e-12)
