"""The bound on a workload so simple that it can be worked out by hand."""

from dataclasses import replace

import pytest

from springtide.scheduling.costs import ServiceCosts
from springtide.simulation.bound import bound, limits
from springtide.simulation.cluster import Cluster
from springtide.simulation.workload import Workload

COSTS = ServiceCosts(
    prefill_base=0.0,
    prefill_token=0.001,
    prefill_attention=0.0,
    decode_base=0.1,
    decode_sequence=0.0,
    decode_context=0.0,
    reload_base=0.0,
    reload_token=0.0,
    reference_token=0.001,
    forward_token=0.001,
    backward_token=0.002,
    optimizer=0.0,
    swap=9.0,
    publish=9.0,
    role_switch=9.0,
)


def constant(value):
    return {"type": "constant", "value": value}


def workload(**changes):
    fields = {
        "name": "by hand",
        "about": "",
        "system": 0,
        "task": constant(100),
        "turns": constant(2),
        "append": constant(50),
        "output": constant(25),
        "latency": constant(3.0),
        "reset": constant(1.0),
        "context": 1000,
        "group_size": 4,
        "groups_per_step": 2,
    }
    return Workload.model_validate(fields | changes)


def cluster(**changes):
    fields = {"name": "by hand", "about": "", "ranks": 4, "kv_tokens": 1_000_000, "host_tokens": 0, "max_batch": 10}
    return Cluster.model_validate(fields | {"costs": COSTS} | changes)


def test_it_is_the_slower_side_of_the_best_split():
    # An episode samples 50 tokens. In rollout it takes 50 steps of 0.1 s, shared by 10 sequences, a quarter of the
    # prompt's prefill and the second turn's 50 tokens; in training 200 tokens of reference, forward and backward.
    rollout = 50 * 0.1 / 10 + 100 * 0.001 / 4 + 50 * 0.001
    training = 200 * 0.004
    rates = [50 * min(ranks / rollout, (4 - ranks) / training) for ranks in (1, 2, 3)]
    found = bound(workload(), cluster(), staleness=10, reference=True)
    assert found.rollout_ranks == 1 + rates.index(max(rates))
    assert found.fluid == pytest.approx(max(rates))
    assert found.bounded == found.fluid


def test_without_a_reference_its_work_is_not_counted():
    rollout = 50 * 0.1 / 10 + 100 * 0.001 / 4 + 50 * 0.001
    rates = [50 * min(ranks / rollout, (4 - ranks) / (200 * 0.003)) for ranks in (1, 2, 3)]
    assert bound(workload(), cluster(), staleness=10, reference=False).fluid == pytest.approx(max(rates))


def test_the_slowest_episode_of_a_batch_limits_what_the_staleness_allows():
    # Alone: reset, two turns of 25 steps and 3 s, and the prefill of all 150 tokens.
    slowest = 1 + 2 * (25 * 0.1 + 3) + 150 * 0.001
    found = bound(workload(), cluster(), staleness=0, reference=True)
    assert found.slowest == pytest.approx(slowest)
    assert found.bounded == pytest.approx(min(found.fluid, 2 * 4 * 50 / slowest))
    assert bound(workload(), cluster(), staleness=1, reference=True).bounded == pytest.approx(
        min(found.fluid, 2 * 2 * 4 * 50 / slowest)
    )


def test_the_batch_is_no_larger_than_the_kv_holds():
    # While tokens are sampled, the context is 100 to 125 and 175 to 200: 150 on average.
    found = bound(workload(), cluster(kv_tokens=600), staleness=10, reference=False)
    rollout = 50 * 0.1 / 4 + 100 * 0.001 / 4 + 50 * 0.001
    rates = [50 * min(ranks / rollout, (4 - ranks) / (200 * 0.003)) for ranks in (1, 2, 3)]
    assert found.fluid == pytest.approx(max(rates))


def test_what_the_infrastructure_fails_costs_rollout_and_earns_nothing():
    failing = bound(workload(failure=0.5, failure_seconds=constant(1.0)), cluster(), staleness=10, reference=False)
    sound = bound(workload(), cluster(), staleness=10, reference=False)
    assert failing.fluid < sound.fluid
    assert failing.slowest > sound.slowest, "an episode that failed within a second was played again"


def test_versions_in_order_make_quick_batches_wait_for_slow_ones():
    plain = limits(workload(), cluster(), reference=True)
    even, uneven = replace(plain, alone=(5.0,) * 4), replace(plain, alone=(1.0, 9.0, 1.0, 9.0))
    assert even.in_order(1) == even.staleness(1) == uneven.staleness(1)
    # Versions 0 and 1 at 0 s. Batch 0 is ready at 1 s, for version 2; batch 1 at 9 s; batch 2, issued at 1 s, at 2 s,
    # but version 4 comes after version 3, at 9 s; batch 3, issued at 9 s, at 18 s.
    assert uneven.in_order(1) == pytest.approx(4 * uneven.batch_tokens / 18)
    assert uneven.in_order(0) == uneven.staleness(0) == pytest.approx(uneven.batch_tokens / 5)
