"""From rows to a frame: names, units, one value per step, and reasons for what is missing."""

from math import nan
from pathlib import Path

import pytest

from springtide.diagnosis.alias import AliasTable
from springtide.diagnosis.canonical import canonical
from springtide.diagnosis.log import Log, Row

TABLE = AliasTable.model_validate(
    {
        "framework": "some",
        "title": "Some",
        "signature": ["pg"],
        "prefixes": ["train/"],
        "ignored": ["time/*"],
        "metrics": {
            "reward/mean": {"keys": ["score", "reward"]},
            "reward/component/*": {"keys": ["parts/*"]},
            "train/entropy": {"keys": ["entropy"]},
            "train/zero_advantage_groups": {"keys": ["mixed"], "scale": -0.01, "offset": 1.0},
            "train/learning_rate": {"keys": ["lr", "lr(1e-4)"], "scales": {"lr(1e-4)": 1e-4}},
            "eval/success": {"keys": ["val/*/acc"]},
            "staleness/mean": {"keys": ["sampler_step"], "lag": True},
            "staleness/dropped": {"keys": ["dropped"], "over": ["made"]},
            "completion/truncated": {"keys": ["cut"], "since": "2.0", "turn_on": "log_cut=True"},
        },
        "never": {"reward/std": "write rollouts"},
        "settings": {
            "learning_rate": "optim.lr",
            "updates_per_batch": ["batch / mini * epochs", "batch / mini"],
            "clip_high": ["high", "low"],
        },
    }
)


def frame(*rows, table=TABLE, **more):
    found = tuple(Row(values=values, step=step) for step, values in rows)
    return canonical(Log(source=Path("x"), container="x", rows=found, **more), table)


def values(found, metric):
    series = found.series[metric]
    return list(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def test_the_first_key_that_is_there_counts():
    assert values(frame((1, {"reward": 1.0})), "reward/mean") == [(1, 1.0)]
    assert values(frame((1, {"reward": 1.0, "train/score": 2.0})), "reward/mean") == [(1, 2.0)]


def test_units():
    found = frame((1, {"mixed": 25.0, "lr(1e-4)": 0.1}), (2, {"lr": 1e-5}))
    assert values(found, "train/zero_advantage_groups") == [(1, 0.75)]
    assert found.series["train/learning_rate"].values == pytest.approx([1e-5])
    assert values(frame((1, {"lr(1e-4)": 0.5})), "train/learning_rate") == [(1, 5e-5)]


def test_a_step_becomes_a_lag_and_counts_a_share():
    found = frame((10, {"sampler_step": 8.0, "dropped": 1.0, "made": 4.0}), (11, {"dropped": 1.0}))
    assert values(found, "staleness/mean") == [(10, 2.0)]
    assert found.series["staleness/dropped"].values[0] == 0.25
    assert list(found.series["staleness/dropped"].steps) == [10]


def test_families_and_means_over_data_sets():
    found = frame((1, {"parts/format": 0.5, "parts/right": 0.25, "val/a/acc": 0.0, "val/b/acc": 1.0}))
    assert values(found, "reward/component/format") == [(1, 0.5)]
    assert values(found, "reward/component/right") == [(1, 0.25)]
    assert values(found, "eval/success") == [(1, 0.5)]


def test_the_last_value_of_a_step_counts_and_steps_increase():
    found = frame((2, {"reward": 1.0}), (1, {"reward": 2.0}), (2, {"reward": 3.0}))
    assert values(found, "reward/mean") == [(1, 2.0), (2, 3.0)]


def test_what_is_missing_has_its_reason():
    found = frame((1, {"reward": 1.0}))
    missing = found.unavailable["completion/truncated"]
    assert "cut" in missing.reason
    assert "2.0" in missing.reason
    assert missing.turn_on == "log_cut=True"
    assert found.unavailable["reward/std"].turn_on == "write rollouts"
    assert found.series.keys() & found.unavailable.keys() == set()


def test_a_key_that_means_something_else_is_unavailable():
    found = frame(*((step, {"cut": 40.0 + step}) for step in range(20)))
    assert "completion/truncated" not in found.series
    assert "40 at step 0" in found.unavailable["completion/truncated"].reason


def test_one_impossible_value_of_many_is_dropped():
    found = frame(*((step, {"cut": 0.5 if step else 1e9}) for step in range(100)))
    assert len(found.series["completion/truncated"]) == 99
    assert any("impossible" in note.text for note in found.notes)


def test_rounding_is_no_damage():
    assert values(frame((1, {"cut": 1.0000001, "entropy": -1e-9})), "completion/truncated") == [(1, 1.0)]


def test_not_a_number_stays_one():
    assert str(values(frame((1, {"entropy": nan})), "train/entropy")) == "[(1, nan)]"


def test_unknown_keys_are_named_and_ignored_ones_are_not():
    assert frame((1, {"reward": 1.0, "mystery": 1.0, "time/step": 1.0})).unknown == ("mystery",)


def test_values_of_a_table_that_averages_cover_what_is_between_rows():
    averaging = TABLE.model_copy(update={"averages": True})
    rows = [(step, {"reward": 1.0}) for step in range(10, 60, 10)]
    assert frame(*rows, table=averaging).series["reward/mean"].window == 10
    assert frame(*rows).series["reward/mean"].window == 1


def test_settings():
    raw = {"optim.lr": 1e-6, "batch": 512, "mini": "128", "epochs": 2, "low": 0.2}
    assert frame(settings=raw).settings == {"learning_rate": 1e-6, "updates_per_batch": 8.0, "clip_high": 0.2}
    del raw["epochs"]
    assert frame(settings=raw).settings["updates_per_batch"] == 4.0
