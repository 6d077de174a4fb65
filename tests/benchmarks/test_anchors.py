"""Anchors are complete as data, fit at most one constant, and a small one can be measured."""

from typing import Any

import pytest

from anchor_support.anchor import Anchor, changed, files, setting
from anchor_support.measure import Measurement
from anchor_support.roofline import Hardware, Model, Slow
from anchor_support.roofline import cluster as roofline_cluster
from springtide.simulation.cluster import cluster

FILES = files()


def small(**fields: Any) -> dict[str, Any]:
    """Two groups of the slow environments, batched and not; latencies are fitted."""
    return {
        "title": "small",
        "source": "nowhere",
        "status": "modelled",
        "assumptions": ["all of it"],
        "departures": [],
        "corrections": [],
        "preset": {"workload": "roll10", "cluster": "h100-7b"},
        "workload": {"groups_per_step": 2},
        "runs": {
            "batched": {"steps": 1, "warm": 0, "strategy": {"mode": "sync", "turnwise": True}},
            "alone": {"steps": 1, "warm": 0, "strategy": {"mode": "sync"}},
        },
        "numbers": [
            {"name": "seconds", "published": 400, "run": "batched", "metric": "step_seconds"},
            {"name": "gain", "published": 10, "run": "batched", "over": "alone", "metric": "step_seconds"},
        ],
        "fit": {
            "constant": "latency",
            "why": "for the test",
            "path": "workload.latency_factor",
            "number": "seconds",
            "low": 0.1,
            "high": 10,
        },
        **fields,
    }


@pytest.mark.parametrize("name", FILES)
def test_an_anchor_is_complete(name: str) -> None:
    anchor = Anchor.model_validate(FILES[name])
    assert "arXiv" in anchor.source or "documentation" in anchor.source
    assert anchor.assumptions
    used = {run for number in anchor.numbers for run in (number.run, number.over)} - {None}
    assert used == set(anchor.runs)
    for run in anchor.runs.values():
        setting(anchor, run)


@pytest.mark.parametrize("name", FILES)
def test_at_most_one_constant_is_fitted_and_the_rest_is_predicted(name: str) -> None:
    text = FILES[name]
    if "fit" not in text:
        return
    assert "carry" not in text
    path = text["fit"]["path"]
    assert changed(text, path, 1234) != text
    assert path.split(".")[0] in (*text, "slow", "scale")
    assert len(text["numbers"]) > 1


def test_a_carried_constant_is_one_that_is_fitted_there() -> None:
    carries = {name: text["carry"] for name, text in FILES.items() if "carry" in text}
    assert carries
    for carry in carries.values():
        assert FILES[carry["from"]]["fit"]["path"] == carry["path"]


def test_an_unknown_run_or_number_is_refused() -> None:
    numbers = [{"name": "seconds", "published": 1, "run": "none", "metric": "step_seconds"}]
    with pytest.raises(ValueError, match="there is no run 'none'"):
        Anchor.model_validate(small(numbers=numbers))
    with pytest.raises(ValueError, match="there is no number 'seconds'"):
        Anchor.model_validate(small(numbers=small()["numbers"][1:]))


def test_costs_are_those_of_the_clusters_in_the_package() -> None:
    made = roofline_cluster(
        Model(parameters=32.8e9, active=32.8e9, weight_bytes=2, layers=64, attention_width=5120, kv_bytes=256 * 1024),
        Hardware(
            accelerator="H100", per_rank=4, ranks=8, max_batch=128, micro_batch_tokens=65536, environment_slots=1024
        ),
        Slow(),
    )
    known = cluster("h100-32b")
    assert made.kv_tokens == pytest.approx(known.kv_tokens, rel=0.01)
    for name, value in known.costs.model_dump().items():
        assert getattr(made.costs, name) == pytest.approx(value, rel=0.01), name


def test_a_small_anchor_is_fitted_on_one_number_and_predicts_the_other() -> None:
    found = Measurement("small", small(), seeds=(1000,)).numbers()
    seconds, gain = found["numbers"]
    assert seconds["within"] == pytest.approx(1, abs=0.02)
    assert not seconds["predicted"]
    assert gain["predicted"]
    assert found["fitted"] == {"latency": pytest.approx(0.66, abs=0.4)}
    assert not gain["reproduced"], "a gain of ten is not what comes out, and that is said"


def test_a_constant_that_does_not_get_there_is_the_nearest_that_may_be() -> None:
    fit = {**small()["fit"], "low": 2.0, "high": 3.0}
    found = Measurement("small", small(fit=fit), seeds=(1000,)).numbers()
    assert found["fitted"] == {"latency": 2.0}
    assert not found["numbers"][0]["reproduced"]


def test_a_sweep_takes_the_fastest_on_a_seed_of_its_own() -> None:
    runs = small()["runs"]
    runs["batched"] = {**runs["alone"], "sweep": {"setting": "concurrency_per_rank", "values": [1, 8]}}
    found = Measurement("small", small(runs=runs, fit=None), seeds=(0,)).numbers()
    assert found["chosen"] == {"batched": {"concurrency_per_rank": 8}}
    assert found["numbers"][1]["simulated"] == pytest.approx(1)
