"""Ranks that move: from a bad split to a good one, with the rules of a run kept."""

import pytest

from springtide.simulation.cluster import cluster
from springtide.simulation.simulate import simulate
from springtide.simulation.strategy import Strategy
from springtide.simulation.workload import preset

WORK = preset("tau").model_copy(update={"groups_per_step": 16})
HARDWARE = cluster("h100-14b")
OURS = {"kv": "keep", "evicts": "warm", "admission": "law", "pipelining": "adaptive", "retention": "break-even"}


def run(**changes):
    return simulate(WORK, HARDWARE, Strategy(**(OURS | changes)), seed=0, steps=6, warm_steps=4)


@pytest.mark.parametrize("start", [1, 7])
def test_a_bad_split_is_left_for_one_as_good_as_the_best_that_stays(start):
    moved = run(elasticity="rates", rollout_ranks=start)
    stays = [run(rollout_ranks=ranks).goodput for ranks in (3, 4, 5)]
    assert moved.splits[0] == start
    assert moved.goodput > 0.9 * max(stays)
    assert max(moved.staleness) <= 1
    assert len(moved.staleness) == 6 * 16, "every step is whole, and no group is lost or trained on twice"


def test_time_adds_up_on_every_lane_and_the_same_seed_moves_the_same():
    one, same = (run(elasticity="rates", rollout_ranks=6) for _ in range(2))
    assert one == same
    assert "other_role" in one.ledger["engine-6"]
    assert any("role_switch" in bins for bins in run(elasticity="rates", rollout_ranks=1).ledger.values())
    for lane, bins in one.ledger.items():
        assert sum(bins.values()) == pytest.approx(one.step_ends[-1], abs=5.0), lane


def test_slower_environments_from_some_task_on():
    shocked = WORK.model_copy(update={"change_at": 0, "change_latency": 4.0})
    slow = simulate(shocked, HARDWARE, Strategy(**OURS, rollout_ranks=4), seed=0, steps=2)
    plain = simulate(WORK, HARDWARE, Strategy(**OURS, rollout_ranks=4), seed=0, steps=2)
    later = WORK.model_copy(update={"change_at": 10_000, "change_latency": 4.0})
    assert slow.step_ends[-1] > plain.step_ends[-1]
    assert simulate(later, HARDWARE, Strategy(**OURS, rollout_ranks=4), seed=0, steps=2) == plain
