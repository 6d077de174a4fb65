import random
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from springtide.simulation.distribution import Distribution, Mixture, mean

READ = TypeAdapter(Distribution).validate_python

KINDS = [
    {"type": "constant", "value": 3.0},
    {"type": "uniform", "start": 2.0, "stop": 5.0},
    {"type": "normal", "mean": 10.0, "deviation": 2.0},
    {"type": "log_normal", "median": 2.0, "shape": 1.5},
    {"type": "geometric", "start": 4.0, "mean": 4.0},
    {
        "type": "mixture",
        "weights": [0.6, 0.4],
        "parts": [
            {"type": "log_normal", "median": 0.12, "shape": 2.0},
            {"type": "log_normal", "median": 3.0, "shape": 2.2, "high": 600.0},
        ],
    },
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["type"])
@given(us=st.lists(st.floats(0, 1), min_size=2, max_size=8))
def test_quantiles_rise_and_are_the_inverse_of_the_share_below(kind, us):
    distribution = READ(kind)
    quantiles = [distribution.quantile(u) for u in sorted(us)]
    assert quantiles == sorted(quantiles)
    for u in us:
        value = distribution.quantile(u)
        assert distribution.below(value * (1 + 1e-3) + 1e-6) >= u - 1e-3


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (KINDS[1], 3.5),
        (KINDS[2], 10.0),
        (KINDS[3], 2.0 * 2.718281828 ** (1.5**2 / 2)),
        (KINDS[4], 8.0),
        ({**KINDS[4], "high": 4.0}, 4.0),
        ({"type": "mixture", "weights": [0.25, 0.75], "parts": [KINDS[0], KINDS[1]]}, 0.25 * 3.0 + 0.75 * 3.5),
    ],
)
def test_means_are_the_textbook_s(kind, expected):
    assert mean(READ(kind), 100_000) == pytest.approx(expected, rel=0.02)


def test_the_latency_of_coding_agents_has_the_published_tail():
    latency = READ(KINDS[5])
    rng = random.Random(0)
    draws = sorted(latency.quantile(rng.random()) for _ in range(40_000))
    assert 10 < fmean(draws) < 18
    assert median(draws) == pytest.approx(0.4, abs=0.15)
    assert sum(draw < 1 for draw in draws) / len(draws) == pytest.approx(0.61, abs=0.06)
    assert sum(draw > 60 for draw in draws) / len(draws) == pytest.approx(0.04, abs=0.02)


def test_a_mixture_s_table_agrees_with_its_bisection():
    mixture = READ(KINDS[5])
    assert isinstance(mixture, Mixture)
    for number in range(1, 200):
        u = number / 200
        assert mixture.quantile(u) == pytest.approx(mixture.solve(u), rel=0.02)


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "mixture", "weights": [0.5], "parts": [KINDS[0], KINDS[1]]},
        {"type": "mixture", "weights": [0.5, 0.6], "parts": [KINDS[0], KINDS[1]]},
        {"type": "log_normal", "median": 0.0, "shape": 1.0},
        {"type": "triangle"},
    ],
)
def test_what_is_no_distribution_is_refused(kind):
    with pytest.raises(ValidationError):
        READ(kind)
