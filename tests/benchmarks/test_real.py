"""How a played run is compared with its prediction."""

import pytest

from clocks_support.real import CASES, FITTED, record, workload
from springtide.ports.engine import EngineStats
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.tokens import require_appending


def outcomes(seconds, ledger):
    return Outcomes(
        goodput=100 / seconds,
        seconds=seconds,
        step_ends=(seconds / 2, seconds),
        trained_tokens=(40, 60),
        staleness=(),
        splits=(),
        ledger=ledger,
        step_ledgers=(),
        stats=EngineStats(),
    )


PREDICTED = outcomes(
    9.0,
    {
        "engine": {"prefill": 1.0, "decode": 3.0, "generate": 0.0, "environment": 2.0},
        "trainer": {"actor": 2.0, "reference": 1.0, "optimizer": 0.5, "train": 0.0, "rollout": 5.5},
    },
)


UNFITTED = outcomes(7.0, PREDICTED.ledger)


def played(seconds):
    return outcomes(
        seconds,
        {"engine": {"generate": 5.0, "environment": 2.5, "journal": 0.25}, "trainer": {"train": 4.0, "rollout": 6.0}},
    )


def test_a_prediction_is_compared_with_the_median_of_what_was_played():
    found = record(CASES[0], PREDICTED, UNFITTED, [played(seconds) for seconds in (12.0, 10.0, 8.0)])
    assert found["error"] == pytest.approx(9.0 / 10.0 - 1)
    assert found["unfitted_error"] == pytest.approx(7.0 / 10.0 - 1)
    assert found["goodput_error"] == pytest.approx(10.0 / 9.0 - 1)


def test_terms_have_the_names_of_the_walls_clock():
    found = record(CASES[0], PREDICTED, UNFITTED, [played(10.0)])["ledger"]
    assert found["engine"] == {
        "generate": {"simulated": 4.0, "real": 5.0},
        "environment": {"simulated": 2.0, "real": 2.5},
        "journal": {"simulated": 0.0, "real": 0.25},
    }
    assert found["trainer"]["train"] == {"simulated": 3.5, "real": 4.0}


def test_costs_are_fitted_to_what_is_not_predicted():
    assert FITTED not in {case.workload for case in CASES}
    require_appending(workload(FITTED))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.workload)
def test_the_workloads_can_be_played(case):
    assert workload(case.workload).window is None
    assert case.strategy.pipelining == "full"
    assert case.strategy.reference
