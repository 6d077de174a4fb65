"""Ranks of several versions: a trajectory stays on its own, its KV moves along, and shares follow the trajectories."""

from collections import Counter

import pytest

from springtide.core.errors import UsageError
from springtide.core.member import Member, Purpose
from springtide.simulation.cluster import cluster
from springtide.simulation.multi_version import VersionAffinity
from springtide.simulation.simulate import Simulation, simulate
from springtide.simulation.stand_ins import NoJournal
from springtide.simulation.strategy import Strategy
from springtide.simulation.virtual_loop import run_virtual
from springtide.simulation.workload import preset

WORK = preset("tau", 8)
HARDWARE = cluster("h100-14b")


class Trajectories(NoJournal):
    def __init__(self):
        self.seen = []

    def append(self, *, entries, trajectories=(), ends=()):
        self.seen += trajectories


def run(**changes):
    journal = Trajectories()
    strategy = Strategy(**({"rollout_ranks": 4, "concurrency_per_rank": 16} | changes))
    simulation = Simulation(WORK, HARDWARE, strategy, seed=0, steps=6, journal=journal)
    done, _ = run_virtual(simulation.main)
    return done, journal.seen


def test_a_trajectory_has_one_version_and_several_are_served_at_once():
    own, trajectories = run(versions="own")
    assert {len(trajectory.counts) for trajectory in trajectories} == {1}
    assert max(own.staleness) == 1
    _, others = run(kv="keep")
    assert max(len(trajectory.counts) for trajectory in others) > 1, "else the workload would show nothing"


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_as_many_ranks_as_there_can_be_versions_are_enough(staleness):
    done, trajectories = run(versions="own", staleness=staleness, rollout_ranks=staleness + 1)
    assert {len(trajectory.counts) for trajectory in trajectories} == {1}
    assert max(done.staleness) == staleness


def test_every_token_of_the_script_is_sampled():
    _, trajectories = run(versions="own")
    _, others = run(kv="keep")
    tokens = {one.member: one.trained_tokens for one in trajectories if one.member.group < 40}
    assert tokens == {one.member: one.trained_tokens for one in others if one.member in tokens}


def test_kv_moves_with_the_trajectory_so_that_nothing_is_computed_again():
    done, _ = run(versions="own")
    assert done.stats.reprefilled == 0
    assert done.stats.reloads > 0


@pytest.mark.parametrize(
    ("changes", "needed"),
    [({"rollout_ranks": 1}, "2 rollout_ranks"), ({"elasticity": "rates"}, "static"), ({"mode": "sync"}, "async")],
)
def test_what_it_cannot_be_combined_with(changes, needed):
    strategy = Strategy(**({"rollout_ranks": 4, "versions": "own"} | changes))
    with pytest.raises(UsageError, match=needed):
        simulate(WORK, HARDWARE, strategy, seed=0, steps=1)


def members(count, start=0):
    return [Member(Purpose.TRAIN, number // 8, number % 8) for number in range(start, start + count)]


def test_shares_of_the_ranks_follow_the_trajectories_of_each_version():
    affinity = VersionAffinity(8)
    old = members(30)
    for member in old:
        affinity.own[member] = 0
        affinity.place(member)
    first = affinity.due(1)
    assert len(first) == 1, "a new version has a rank before it has trajectories"
    affinity.serves[first[0]] = 1
    for member in members(10, start=80):
        affinity.own[member] = 1
        assert affinity.place(member) == first[0]
    assert len(affinity.due(1)) == 1, "10 of 40 trajectories: 2 of 8 ranks"
    for rank in affinity.due(1):
        affinity.serves[rank] = 1
    for member in old[1:]:
        del affinity.own[member]
    for rank in affinity.due(1):
        affinity.serves[rank] = 1
    assert Counter(affinity.serves) == {1: 7, 0: 1}, "one is left as long as one trajectory is"
    del affinity.own[old[0]]
    assert len(affinity.due(1)) == 1


def test_a_version_with_little_to_spare_does_not_keep_the_newest_without_a_rank():
    affinity = VersionAffinity(3)
    affinity.serves = [0, 1, 1]
    affinity.own = {member: int(number > 0) for number, member in enumerate(members(20))}
    affinity.loads = [1, 10, 9]
    assert affinity.due(2) == [2]
