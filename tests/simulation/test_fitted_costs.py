"""Costs that are fitted in modelled runs: what ranks report explains what they take, and policies go by it."""

from statistics import median

import pytest

from springtide.scheduling.cost_fold import CostFold, served
from springtide.scheduling.costs import ServiceCosts
from springtide.simulation.cluster import Cluster, cluster
from springtide.simulation.simulate import Simulation, simulate
from springtide.simulation.stack import ModelledStack
from springtide.simulation.strategy import Strategy
from springtide.simulation.virtual_loop import run_virtual
from springtide.simulation.workload import preset

TRUE = ServiceCosts(
    prefill_base=0.004,
    prefill_token=6e-5,
    prefill_attention=2e-9,
    decode_base=0.01,
    decode_sequence=6e-5,
    decode_context=7e-8,
    visit=0.003,
    join=0.002,
    turn=0.001,
    reload_base=0.001,
    reload_token=4e-6,
    reference_token=7e-5,
    forward_token=7e-5,
    backward_token=1.5e-4,
    training_attention=1e-6,
    optimizer=0.5,
    swap=0.6,
    publish=1.6,
    role_switch=5.0,
)
SMALL = preset("tau", 4)
TIGHT = Cluster(
    name="small", about="", ranks=4, kv_tokens=120_000, host_tokens=60_000, micro_batch_tokens=16384, costs=TRUE
)
TRAINING = ("forward_token", "backward_token", "reference_token")
LAW = Strategy(kv="keep", evicts="warm", retention="break-even", admission="law", pipelining="adaptive")


def scaled(factor):
    return ServiceCosts(**{name: factor * value for name, value in TRUE.model_dump().items()})


def play(strategy, costs, *, work=SMALL, hardware=TIGHT, steps=2):
    return run_virtual(Simulation(work, hardware, strategy, seed=0, steps=steps, costs=costs).main)[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"rollout_ranks": 2},
        {"rollout_ranks": 2, "kv": "refresh", "retention": "lru", "admission": "fixed", "decode_steps": 3},
        {"rollout_ranks": 1, "pipelining": "swap-2", "concurrency_per_rank": 96, "admission": "fixed"},
        {"rollout_ranks": 4, "pipelining": "full"},
        {"elasticity": "rates"},
        {"mode": "sync", "kv": "recompute", "pipelining": "full"},
    ],
)
def test_what_ranks_report_explains_what_they_take(changes):
    """To the last digit but rounding: costs that are right are never corrected."""
    fold = CostFold(TRUE)
    told = []
    visited = fold.visited
    fold.visited = lambda done, seconds: (told.append(done), visited(done, seconds))
    play(LAW.model_copy(update=changes), fold)
    assert len(told) > 100
    assert fold.now().model_dump() == pytest.approx(TRUE.model_dump(), rel=1e-3)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_wrong_prior_is_corrected_within_a_few_visits(factor):
    fold, errors = CostFold(scaled(factor)), []
    visited = fold.visited

    def watched(done, seconds):
        if done.visits:
            costs = fold.now()
            names = ("prefill_base", "prefill_token", "prefill_attention", "decode_base", "decode_sequence")
            names += ("decode_context", "visit", "join", "turn")
            predicted = sum(getattr(costs, name) * n for name, n in zip(names, served(done), strict=True))
            errors.append(abs(predicted / (seconds - done.reload_wait) - 1))
        visited(done, seconds)

    fold.visited = watched
    play(LAW.model_copy(update={"rollout_ranks": 2}), fold)
    assert errors[0] == pytest.approx(abs(factor - 1))
    assert median(errors[100:]) < 0.01
    assert max(errors[100:]) < 0.1
    assert fold.now().decode_base == pytest.approx(TRUE.decode_base, rel=0.1)
    assert fold.now().publish == pytest.approx(TRUE.publish, rel=0.05)


def test_ranks_move_by_what_was_measured_lately():
    """By the prior training takes a tenth of what it does, so that one rank would be enough for it."""
    hurried = TRUE.model_copy(update={name: 0.1 * getattr(TRUE, name) for name in TRAINING})
    strategy, work = LAW.model_copy(update={"elasticity": "rates"}), preset("tau", 8)
    right, fitted, wrong = (
        play(strategy, costs, work=work, steps=6).splits for costs in (lambda: TRUE, CostFold(hurried), lambda: hurried)
    )
    assert right[-1] == fitted[-1] != wrong[-1]


def test_in_a_cluster_that_is_as_it_says_nothing_is_different():
    work, hardware = preset("shop", 4), cluster("h100-14b")
    given, fitted = (
        simulate(work, hardware, LAW.model_copy(update={"rollout_ranks": 4, "costs": costs}), seed=1, steps=2)
        for costs in ("given", "fitted")
    )
    assert fitted.step_ends == pytest.approx(given.step_ends, rel=0.01)


def test_work_that_changes_in_the_middle_of_a_run_is_followed():
    strategy = LAW.model_copy(update={"rollout_ranks": 2})
    fold = CostFold(TRUE)
    stack = ModelledStack(TIGHT, strategy, engines=2, training=2, colocated=False, expected=fold.now)
    step = stack.trainer.step

    def changing(*, step: int, groups):
        if step == 2:
            stack.change(scaled(1.5).model_copy(update={"training_attention": TRUE.training_attention}))
        return original(step=step, groups=groups)

    original, stack.trainer.step = step, changing
    run = Simulation(SMALL, TIGHT, strategy, seed=0, steps=6, stack=stack, costs=fold)
    run_virtual(run.main)
    assert fold.now().decode_base == pytest.approx(1.5 * TRUE.decode_base, rel=0.1)
    assert fold.now().actor(1) == pytest.approx(1.5 * TRUE.actor(1), rel=0.15)
