"""Ranks that all roll out and all train, in turns."""

import pytest

from springtide.core.errors import UsageError
from springtide.simulation.cluster import cluster
from springtide.simulation.simulate import simulate
from springtide.simulation.strategy import Strategy
from springtide.simulation.timeline import Timeline
from springtide.simulation.workload import preset

HARDWARE = cluster("h100-14b")
OURS = {"kv": "keep", "evicts": "warm", "admission": "law", "pipelining": "adaptive", "retention": "break-even"}
QUICK, SLOW = (preset(name).model_copy(update={"groups_per_step": 16}) for name in ("shop", "roll10"))


def run(work=QUICK, hardware=HARDWARE, *, steps=4, timeline=None, **changes):
    return simulate(work, hardware, Strategy(**(OURS | changes)), seed=0, steps=steps, warm_steps=3, timeline=timeline)


def spans(timeline, lane, kinds):
    return [
        (span.start, span.start + span.seconds) for span in timeline.spans if span.lane == lane and span.kind in kinds
    ]


def test_nobody_rolls_out_while_the_ranks_train():
    timeline = Timeline()
    done = run(rollout_ranks=8, timeline=timeline)
    trains = spans(timeline, "trainer", {"actor", "reference", "optimizer", "swap"})
    assert trains
    for rank in range(8):
        for start, end in spans(timeline, f"engine-{rank}", {"decode", "prefill", "recompute", "reload"}):
            assert all(end <= begun + 1e-6 or over - 1e-6 <= start for begun, over in trains)
    assert max(done.staleness) == 1, "episodes live on through a step"
    assert len(done.staleness) == 4 * 16


def test_kv_waits_in_host_memory_while_the_ranks_train():
    assert run(rollout_ranks=8).hit_rate > 0.99
    without = HARDWARE.model_copy(update={"host_tokens": 0})
    assert run(hardware=without, rollout_ranks=8, evicts="cold").hit_rate < 0.95


def test_one_rank_is_enough():
    one = HARDWARE.model_copy(update={"ranks": 1})
    done = run(QUICK.model_copy(update={"groups_per_step": 4}), one, rollout_ranks=1)
    assert done.splits == (1,) * 7
    assert max(done.staleness) <= 1


def test_ranks_begin_to_take_turns_where_that_is_faster_and_else_do_not():
    work = preset("shop")
    moved = run(work, elasticity="rates", steps=8)
    assert (moved.splits[0], moved.splits[-1]) == (4, 8)
    assert moved.goodput > max(run(work, rollout_ranks=ranks, steps=8).goodput for ranks in (2, 3))
    assert 8 not in run(SLOW, elasticity="rates").splits, "all would wait for the longest episodes"


def test_the_same_seed_takes_the_same_turns():
    one, same = (run(elasticity="rates") for _ in range(2))
    assert one == same
    for lane, bins in one.ledger.items():
        assert sum(bins.values()) == pytest.approx(one.step_ends[-1], abs=5.0), lane


def test_a_mode_of_ranks_that_only_train_is_refused():
    with pytest.raises(UsageError, match="pipelining = ahead needs ranks that only train"):
        run(rollout_ranks=8, pipelining="ahead")
