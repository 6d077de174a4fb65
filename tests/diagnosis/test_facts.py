import numpy as np
import pytest

from springtide.diagnosis.facts import (
    Track,
    binomial_tail,
    correlation,
    members,
    milestones,
    noise,
    noise_of_means,
    trend,
)


def track(values):
    return Track("reward/mean", np.arange(len(values)), np.asarray(values, dtype=float))


def test_noise_is_what_varies_around_a_trend():
    rng = np.random.default_rng(0)
    values = np.linspace(0, 10, 400) + rng.normal(0, 0.3, 400)
    assert noise(values) == pytest.approx(0.3, rel=0.15)


def test_a_collapse_is_no_noise():
    rng = np.random.default_rng(0)
    before = rng.normal(0.8, 0.05, 60)
    assert noise(np.concatenate((before, np.zeros(3)))) < 1.3 * noise(before)


def test_means_of_what_wanders_are_noisier_than_independent_ones():
    rng = np.random.default_rng(0)
    walk = np.zeros(400)
    for at in range(1, 400):
        walk[at] = 0.9 * walk[at - 1] + rng.normal()
    assert noise_of_means(walk, 20) > 2 * noise(walk) / np.sqrt(20)


def test_a_trend_is_told_from_noise_and_from_wandering():
    rng = np.random.default_rng(0)
    assert trend(np.linspace(0, 1, 60) + rng.normal(0, 0.2, 60)) > 4
    assert trend(-np.linspace(0, 1, 60) + rng.normal(0, 0.2, 60)) < -4
    assert trend(np.full(60, 0.4)) == 0
    wandering = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        values = np.zeros(100)
        for at in range(1, 100):
            values[at] = 0.8 * values[at - 1] + rng.normal()
        wandering.append(abs(trend(values)) > 4)
    assert np.mean(wandering) < 0.1


def test_trends_alone_do_not_correlate_and_common_noise_does():
    rng = np.random.default_rng(0)
    rises, both = np.linspace(0, 1, 80), rng.normal(0, 0.1, 80)
    assert abs(correlation(rises + rng.normal(0, 0.1, 80), 3 * rises + rng.normal(0, 0.1, 80))) < 0.35
    assert correlation(rises + both, rises - 2 * both) < -0.9


def test_loss_is_a_share_of_the_best_and_of_the_range_below_zero():
    share, certain = track([0.8] * 20 + [0.2] * 20).losses(1)[0]
    assert share[-1] == pytest.approx(0.75)
    assert certain[-1] > 5
    share, _ = track([-1.0] * 20 + [1.0] * 20 + [0.0] * 20).losses(1)[0]
    assert share[-1] == pytest.approx(0.5)


def test_what_is_known_of_a_point_rests_on_earlier_ones():
    rng = np.random.default_rng(0)
    values = rng.normal(0.5, 0.1, 200)
    whole, part = track(values), track(values[:120])
    count = milestones(120)[-2]
    assert np.array_equal(whole.noise(4)[:count], part.noise(4)[:count], equal_nan=True)
    assert np.array_equal(whole.start(5)[:120], part.start(5), equal_nan=True)


def test_chance_of_zeros():
    assert binomial_tail(2, np.array([0.5, 0.5])) == pytest.approx(0.25)
    assert binomial_tail(0, np.array([0.5, 0.5])) == pytest.approx(1)
    assert binomial_tail(20, np.full(20, 0.5)) == pytest.approx(0.5**20)


def test_groups_of_a_step_are_read_off_the_share():
    shares = np.array([0.7, 0.9, 1.0, 0.8])
    assert members(shares, window=5) == 2
    assert members(np.array([0.58125, 0.5, 0.6]), window=10) == 16
    assert members(np.array([1.0, 1.0, 1.0]), window=5) == 1


def test_a_long_series_is_thinned_and_keeps_its_extremes():
    values = np.zeros(10_000)
    values[6000] = 7.0
    thin = Track("train/ratio_max", np.arange(10_000), values, aggregate="max")
    assert len(thin) < 2000
    assert thin.values.max() == 7.0
