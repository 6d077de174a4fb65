"""Service costs that are folded from finished work."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.ports.engine import EngineStats
from springtide.ports.trainer import Passes, StepWork
from springtide.scheduling.admission import ConcurrencyLaw
from springtide.scheduling.cost_fold import CostFold
from springtide.scheduling.costs import ServiceCosts
from springtide.scheduling.elasticity import Demand, Rates
from springtide.scheduling.readiness import Readiness
from springtide.scheduling.retention import BreakEven, Load

TRUE = ServiceCosts(
    prefill_base=0.01,
    prefill_token=0.002,
    prefill_attention=1e-6,
    decode_base=0.005,
    decode_sequence=0.001,
    decode_context=2e-6,
    visit=0.003,
    join=0.007,
    turn=0.005,
    reload_base=0.004,
    reload_token=1e-5,
    reference_token=0.001,
    forward_token=0.002,
    backward_token=0.004,
    training_attention=0.0001,
    optimizer=3.0,
    swap=0.5,
    publish=2.0,
    role_switch=7.0,
)
NAMES = tuple(ServiceCosts.model_fields)


def scaled(factor):
    return ServiceCosts(**{name: factor * value for name, value in TRUE.model_dump().items()})


def seconds(costs, done):
    """Of an engine's work, by hand."""
    return (
        costs.visit * done.visits
        + costs.prefill_base * done.starts
        + costs.join * done.joins
        + costs.turn * done.turns
        + costs.prefill_token * (done.prefilled + done.reprefilled + done.refreshed)
        + costs.prefill_attention * done.attended
        + costs.decode_base * done.steps
        + costs.decode_sequence * done.decoded
        + costs.decode_context * done.read
    )


def visits(r, number):
    """Like those of a run, large and small: turns join a batch, or begin one."""
    for _ in range(number):
        size = r.choice((1, 10, 100))
        turns, joins, steps = r.randint(0, 3), r.random() < 0.5, r.randint(1, 16)
        tokens, batch = turns * r.randint(1, 3 * size), max(1, turns) + (r.randint(1, size) if joins else 0)
        yield EngineStats(
            visits=1,
            starts=int(turns > 0 and not joins),
            joins=int(turns > 0 and joins),
            turns=turns,
            prefilled=tokens // 2,
            reprefilled=tokens - tokens // 2,
            attended=tokens * r.randint(0, 40 * size),
            steps=steps,
            decoded=steps * batch,
            read=steps * batch * r.randint(1, 40 * size),
        )


def step(costs, *, tokens=1000.0, attended=400_000.0, updates=2, swaps=4.0):
    alike = tokens + costs.training_attention * attended
    return StepWork(
        actor=Passes(tokens=tokens, attended=attended, seconds=costs.actor(1) * alike),
        reference=Passes(tokens=tokens / 2, attended=attended / 2, seconds=costs.reference_token * alike / 2),
        updates=updates,
        update_seconds=costs.optimizer * updates,
        swaps=swaps,
        swap_seconds=costs.swap * swaps,
    )


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_all_costs_are_found_from_work_alone(factor):
    r = random.Random(1)
    fold = CostFold(scaled(factor))
    for done in visits(r, 5000):
        fold.visited(done, seconds(TRUE, done))
        tokens = r.randint(1, 5000)
        took = TRUE.reload_base * 2 + TRUE.reload_token * tokens
        fold.visited(EngineStats(reloads=2, reloaded=tokens, reload_seconds=took), 0.0)
    for _ in range(200):
        fold.trained(step(TRUE, tokens=1000.0, attended=1000.0 * r.randint(0, 50_000)))
        fold.published(TRUE.publish)
        fold.switched(TRUE.role_switch)
    for name in NAMES:
        assert getattr(fold.now(), name) == pytest.approx(getattr(TRUE, name), rel=0.1), name


def test_waiting_for_reloads_is_no_work():
    fold = CostFold(TRUE)
    for _ in range(100):
        fold.visited(EngineStats(visits=1, steps=10, reload_wait=5.0), 5.0 + 0.003 + 10 * 0.005)
    assert fold.now().model_dump() == pytest.approx(TRUE.model_dump())


def test_forward_and_backward_keep_their_proportion():
    fold = CostFold(TRUE)
    for _ in range(50):
        fold.trained(step(scaled(3.0).model_copy(update={"training_attention": TRUE.training_attention})))
    found = fold.now()
    assert found.backward_token / found.forward_token == pytest.approx(2.0)
    assert found.actor(1000) + found.training_attention * found.actor(400_000) == pytest.approx(
        3 * (TRUE.actor(1000) + TRUE.training_attention * TRUE.actor(400_000)), rel=1e-3
    )


def test_what_has_been_read_does_not_change():
    fold = CostFold(TRUE)
    before = fold.now()
    fold.published(100.0)
    assert before.publish == 2.0
    assert fold.now().publish > 2.0


def test_work_of_one_kind_says_nothing_of_others():
    fold = CostFold(TRUE)
    fold.published(20.0)
    fold.switched(30.0)
    fold.trained(StepWork())
    fold.visited(EngineStats(), 1.0)
    assert fold.now() == TRUE.model_copy(update={"publish": fold.now().publish, "role_switch": fold.now().role_switch})


def test_a_cluster_without_training_costs_learns_none():
    plain = TRUE.model_copy(update=dict.fromkeys(("forward_token", "backward_token", "reference_token"), 0.0))
    fold = CostFold(plain)
    fold.trained(step(TRUE))
    assert (fold.now().forward_token, fold.now().backward_token, fold.now().reference_token) == (0, 0, 0)
    assert fold.now().optimizer == pytest.approx(3.0)


def test_policies_decide_by_what_has_been_learned():
    """The law's number of episodes, retention's price and the throughput of a split are those of the right costs."""
    seen = Readiness(
        environment=3.0,
        context=1000.0,
        output=50.0,
        appended=100.0,
        turns=5.0,
        trained=1200.0,
        longest=9.0,
        interval=None,
        backlog=0,
        oldest=0.0,
        open=0,
        ended=99,
    )
    load = Load(running=4, context=1000.0, host_free=0)
    r = random.Random(1)

    def decided(costs):
        law = ConcurrencyLaw(costs=costs, kv_tokens=10_000, host_tokens=0, max_batch=20)
        rates = Rates(costs=costs, kv_tokens=10_000, max_batch=20)
        rule = BreakEven(costs)
        demand = Demand(ranks=8, batch=64, live=128, reference=True)
        return law.limit(seen), rule.resume(1000, load), rates.throughput(seen, 4, demand)

    fold = CostFold(scaled(4.0))
    before = decided(fold.now)
    for done in visits(r, 2000):
        fold.visited(done, seconds(TRUE, done))
    for _ in range(10):
        fold.trained(step(TRUE, tokens=1000.0, attended=1000.0 * r.randint(0, 1000)))
        fold.published(TRUE.publish)
    right = decided(lambda: TRUE)
    assert decided(fold.now) == pytest.approx(right, rel=0.1)
    assert all(old != pytest.approx(new, rel=0.3) for old, new in zip(before[1:], right[1:], strict=True))


AMOUNT = st.integers(0, 10**9)
TOOK = st.floats(0, 1e9)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.lists(AMOUNT, min_size=9, max_size=9), TOOK, TOOK), max_size=10),
    st.lists(st.tuples(AMOUNT, AMOUNT, TOOK), max_size=5),
    st.floats(1e-9, 1e9),
)
def test_costs_are_costs_whatever_is_told(engine_work, steps, factor):
    fold = CostFold(scaled(factor))
    names = ("visits", "starts", "joins", "turns", "prefilled", "attended", "steps", "decoded", "read")
    for amounts, waited, took in engine_work:
        done = EngineStats(**dict(zip(names, amounts, strict=True)), reload_wait=waited)
        fold.visited(done, took)
    for tokens, attended, took in steps:
        fold.trained(StepWork(actor=Passes(tokens=tokens, attended=attended, seconds=took)))
        fold.published(took)
    assert ServiceCosts.model_validate(fold.now().model_dump()) == fold.now(), "finite, and none negative"
    if not steps:
        assert fold.now().publish == TRUE.publish * factor
