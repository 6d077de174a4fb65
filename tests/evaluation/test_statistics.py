import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.evaluation.count import Count, pooled
from springtide.evaluation.statistics import Paired, difference, mcnemar, paired_difference, rate_interval, wilson

COUNTS = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
TABLES = st.builds(
    Paired,
    both=st.integers(0, 60),
    only_first=st.integers(0, 60),
    only_second=st.integers(0, 60),
    neither=st.integers(0, 60),
)


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
    assert paired_difference(Paired(both=0, only_first=0, only_second=0, neither=0)) is None


def test_difference_of_independent_rates_by_hand():
    """56/70 - 48/80 = 0.2, interval 0.0524 to 0.3339 (Newcombe 1998b, table II)."""
    interval = difference(Count(48, 80), Count(56, 70))
    assert interval.estimate == pytest.approx(0.2)
    assert (round(interval.low, 4), round(interval.high, 4)) == (0.0524, 0.3339)
    assert interval.excludes_zero


def test_paired_difference_by_hand():
    """38/50 against 48/50: Wilson 0.6259 to 0.8570 and 0.8654 to 0.9890, phi = -24 / sqrt(48 * 2 * 38 * 12) = -0.1147.

    low = 0.2 - sqrt(0.0946^2 + 2 * 0.1147 * 0.0946 * 0.0970 + 0.0970^2) = 0.0569, and 0.3404 likewise.
    """
    interval = paired_difference(Paired(both=36, only_first=2, only_second=12, neither=0))
    assert interval.estimate == pytest.approx(0.2)
    assert (round(interval.low, 4), round(interval.high, 4)) == (0.0569, 0.3404)


def test_paired_difference_reduces_a_positive_correlation():
    """1, 1, 7, 12 of 21: 0.286 with 0.026 to 0.507, where a * d - b * c = 5 is below n / 2 and counts as zero."""
    interval = paired_difference(Paired(both=1, only_first=1, only_second=7, neither=12))
    assert (round(interval.low, 3), round(interval.high, 3)) == (0.026, 0.507)


def test_mcnemar_by_hand():
    """One against seven: 2 * (1 + 8) / 2^8; nothing differs: 1."""
    assert mcnemar(Paired(both=9, only_first=1, only_second=7, neither=3)) == pytest.approx(18 / 256)
    assert mcnemar(Paired(both=4, only_first=0, only_second=0, neither=4)) == 1.0


def test_invalid_episodes_stand_beside_and_never_inside():
    with_invalid, without = Count(30, 100, invalid=50), Count(30, 100)
    assert with_invalid.rate == without.rate == 0.3
    assert rate_interval(with_invalid) == rate_interval(without)
    assert with_invalid.invalid_rate == pytest.approx(1 / 3)


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


@given(TABLES.filter(lambda table: table.n > 0))
def test_a_paired_difference_is_around_its_estimate_and_antisymmetric(table):
    forward = paired_difference(table)
    swapped = Paired(both=table.both, only_first=table.only_second, only_second=table.only_first, neither=table.neither)
    assert -1 <= forward.low <= forward.estimate + 1e-12
    assert forward.estimate - 1e-12 <= forward.high <= 1
    assert paired_difference(swapped).low == pytest.approx(-forward.high, abs=1e-12)
    assert mcnemar(table) == mcnemar(swapped)
    assert 0 < mcnemar(table) <= 1
