"""When KV of earlier versions is no longer trusted, and when it is again."""

import pytest

from springtide.scheduling.divergence import EVIDENCE, MEMORY, DivergenceBudget


def test_nothing_is_decided_without_evidence():
    budget = DivergenceBudget(1e-3)
    assert budget.observed(tokens=EVIDENCE - 1, k3=100.0) is None
    assert budget.trusted
    assert budget.estimate is None


def test_above_the_budget_trust_ends_and_well_below_it_by_new_evidence_it_returns():
    budget = DivergenceBudget(1e-3)
    assert budget.observed(tokens=1000, k3=0.9) is None
    assert budget.observed(tokens=1000, k3=4.0) == pytest.approx(3.2e-3, rel=0.1)
    assert not budget.trusted
    # What led to that counts no more; between half of the budget and the budget nothing changes, whichever way.
    assert budget.observed(tokens=1000, k3=0.9) is None
    assert not budget.trusted
    assert budget.observed(tokens=8000, k3=0.8) == pytest.approx(1e-4, rel=0.5)
    assert budget.trusted
    assert budget.observed(tokens=1000, k3=0.7) is None
    assert budget.trusted


def test_the_estimate_forgets():
    budget = DivergenceBudget(1e-3)
    budget.observed(tokens=1000, k3=0.9)
    for _ in range(10 * MEMORY // 1000):
        budget.observed(tokens=1000, k3=0.1)
    assert budget.estimate == pytest.approx(1e-4, rel=0.01)
