"""The whole modelled system under random workloads, strategies and faults keeps its invariants: see `invariants.py`.

That the checks can fail is shown in `test_invariants_caught.py`.
"""

from collections import Counter
from dataclasses import replace

import pytest

from simulation.faulty import Faults, case, play
from simulation.invariants import ViolationError
from springtide.core.group import End
from springtide.simulation.distribution import Uniform

MODES = ("full", "swap", "swap-2", "split-1", "ahead", "adapter", "adaptive")


def play_all(seeds):
    """What happened, counted."""
    seen = Counter()
    for seed in seeds:
        try:
            run = play(case(seed))
        except Exception as error:
            error.add_note(f"It is case({seed}).")
            raise
        stats = [engine.stats() for engine in run.engines]
        seen["events"] += run.books.events
        seen["visits"] += sum(rank.visits for rank in run.ranks)
        seen["steps"] += len(run.books.batches)
        seen["repeated"] += run.repeated
        seen["moves"] += run.books.moves
        seen["aborted"] += bool(run.aborted)
        seen["deaths"] += run.deaths
        seen["done again"] += run.again
        seen["lost answers"] += run.dropped
        seen["preempted"] += sum(each.preemptions for each in stats)
        seen["reloaded"] += sum(each.reloads for each in stats)
        seen["recomputed"] += sum(each.reprefilled > 0 for each in stats)
        seen.update(record.end for record in run.books.ends())
    print(dict(seen))
    return seen


def check_that_everything_happened(seen, *, events):
    assert seen["events"] >= events
    for name in ("repeated", "moves", "deaths", "preempted", "reloaded", "recomputed", *End):
        assert seen[name] > 50, name
    assert seen["done again"] > 5
    assert seen["lost answers"] > 5
    assert seen["aborted"] < 0.03 * seen["steps"], "hardly a run is given up, other than for want of ranks"


def test_invariants_hold_under_faults():
    check_that_everything_happened(play_all(range(240)), events=20_000)


@pytest.mark.slow
def test_invariants_hold_under_many_more_faults():
    check_that_everything_happened(play_all(range(1000, 2300)), events=100_000)


def test_the_same_case_leaves_the_same_trace_whoever_dies():
    deaths = 0
    for seed in range(60):
        if case(seed).faults.deaths:
            one, same = play(case(seed)), play(case(seed))
            assert one.books.trace == same.books.trace
            deaths += one.deaths
    assert deaths > 20


def moving(seed):
    """A case in which episodes that hardly ever pause move from rank to rank all the time."""
    made = case(seed)
    return replace(
        made,
        workload=made.workload.model_copy(update={"latency": Uniform(type="uniform", start=0.1, stop=2.0)}),
        cluster=made.cluster.model_copy(update={"ranks": 4, "host_tokens": 10**5}),
        faults=Faults(moves=40),
        scheduling={},
    ).but(mode="async", staleness=2, rollout_ranks=3, evicts="warm", pipelining="full", turnwise=False)


def test_invariants_hold_while_everybody_moves():
    runs = [play(moving(seed)) for seed in range(20)]
    assert sum(run.books.moves for run in runs) > 200
    assert sum(engine.stats().reloads for run in runs for engine in run.engines) > 50


def undisturbed(seed):
    """A case in which the trainer has no influence on the rollout: nothing waits for a version, and none costs time.

    It is busy all the same: complete groups and whole steps wait for it.
    """
    made = case(seed)
    quick = Uniform(type="uniform", start=0.1, stop=9.0)
    work = ("optimizer", "swap", "reference_token", "forward_token", "backward_token")
    costs = made.cluster.costs.model_copy(
        update={"publish": 0.0} | {name: 5.0 * getattr(made.cluster.costs, name) for name in work}
    )
    return replace(
        made,
        workload=made.workload.model_copy(update={"latency": quick}),
        cluster=made.cluster.model_copy(update={"ranks": 4, "costs": costs}),
        faults=Faults(),
        scheduling={"max_attempts": 2, "filter_zero_variance": seed % 2 == 0},
    ).but(
        mode="async",
        staleness=99,
        rollout_ranks=2,
        kv="keep",
        kv_gap=99,
        elasticity="static",
        admission="fixed",
        batchwise=False,
        turnwise=False,
    )


def check_that_batches_do_not_depend_on_the_pipelining(seed):
    batches = {}
    for mode in MODES:
        for reference in (True, False):
            run = play(undisturbed(seed).but(pipelining=mode, reference=reference))
            batches[mode, reference] = run.books.batches
    one = batches["full", True]
    for setting, other in batches.items():
        if other != one:
            raise ViolationError(f"I6: {setting} trains on {other}, and the full batch on {one}")
    return one


def test_batches_do_not_depend_on_the_pipelining():
    overtaken = 0
    for seed in range(8):
        order = [group for batch in check_that_batches_do_not_depend_on_the_pipelining(seed) for group in batch]
        overtaken += order != sorted(order)
    assert overtaken > 2, "if all went in issue order, nothing would be shown"


WAYS = (
    {"kv": "keep", "evicts": "warm", "retention": "break-even", "decode_steps": 64},
    {"kv": "recompute", "evicts": "cold", "retention": "lru", "decode_steps": 8},
    {"kv": "recompute", "evicts": "warm", "retention": "cap-0.5", "staleness": 3},
    {"kv": "refresh", "evicts": "warm", "retention": "lru", "staleness": 3},
    {"kv": "keep", "evicts": "cold", "retention": "ttl-4", "elasticity": "rates", "pipelining": "ahead"},
)


def check_that_tokens_do_not_depend_on_the_way(seed):
    """The same episodes on another way, and on ranks with another memory, sample the same."""
    made = replace(case(seed), steps=3, faults=replace(case(seed).faults, moves=3))
    made = made.but(mode="async", rollout_ranks=1, pipelining="full")
    roomy = replace(made, cluster=made.cluster.model_copy(update={"kv_tokens": 10**6}))
    expected, preempted, common = play(roomy).books.outputs, 0, 0
    for changes in WAYS:
        tight = made.cluster.model_copy(update={"kv_tokens": made.workload.context + 2, "max_batch": 8})
        run = play(replace(made, cluster=tight).but(**changes))
        preempted += sum(engine.stats().preemptions for engine in run.engines)
        for who, outputs in run.books.outputs.items():
            if who in expected:
                common += 1
                if outputs != expected[who]:
                    raise ViolationError(f"I10: {who} samples {outputs}, and elsewhere {expected[who]}")
    return preempted, common


def test_tokens_do_not_depend_on_what_becomes_of_their_kv():
    counts = [check_that_tokens_do_not_depend_on_the_way(seed) for seed in range(6)]
    assert sum(preempted for preempted, _ in counts) > 20
    assert sum(common for _, common in counts) > 500
