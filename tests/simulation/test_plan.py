"""A plan's answer reaches its target and fewer ranks do not; what cannot be reached is refused with its reason."""

import pytest

from springtide.core.errors import UsageError
from springtide.simulation.bound import limits
from springtide.simulation.cluster import cluster
from springtide.simulation.plan import plan, smallest
from springtide.simulation.strategy import OURS, ours
from springtide.simulation.summary import summarise
from springtide.simulation.workload import preset

SHOP = preset("shop").model_copy(update={"groups_per_step": 8})
H100 = cluster("h100-7b")
LENGTH = {"seeds": [0], "steps": 2, "warm_steps": 1}


def planned(target, strategy=OURS, *, workload=SHOP, hardware=H100, ranks_max=16, **options):
    return plan(workload, hardware, strategy, target=target, ranks_max=ranks_max, **LENGTH, **options)


def goodput(ranks, strategy=OURS):
    hardware = H100.model_copy(update={"ranks": ranks})
    return summarise(SHOP, hardware, strategy, **LENGTH)[0].goodput_tokens_per_s


@pytest.mark.parametrize("answer", [2, 3, 7, 30, 31])
def test_the_smallest_that_reaches_is_found_whatever_the_start(answer):
    assert {smallest(lambda n: n >= answer, low=low, high=31) for low in range(2, answer + 1)} == {answer}


def test_a_neighbour_below_that_reaches_after_all_is_taken():
    assert smallest(lambda n: n in (6, 8, 9, 10, 11, 12), low=5, high=12) == 6
    assert smallest(lambda n: n in (10, 12, 13), low=9, high=20) == 10


def test_where_nothing_reaches_there_is_no_answer():
    assert smallest(lambda n: False, low=2, high=9) is None


def test_the_answer_reaches_the_target_and_one_rank_fewer_does_not():
    target = goodput(4)
    watched = []
    found = planned(target, watch=watched.append)
    assert found.ranks == 4
    assert goodput(3) < target
    assert sorted(watched) == [candidate.ranks for candidate in found.candidates]
    answer = next(candidate for candidate in found.candidates if candidate.ranks == 4)
    assert answer.goodput_tokens_per_s == target
    assert answer.rollout_ranks + answer.training_ranks == 4
    assert found.ranks_bound <= 4
    assert {3, 5} & {candidate.ranks for candidate in found.candidates}


def test_a_target_above_what_staleness_allows_is_refused_unplayed_and_the_remedy_is_true():
    allowed = limits(SHOP, H100, reference=True).staleness(1)
    found = planned(1.4 * allowed)
    assert (found.ranks, found.limit, found.candidates) == (None, "staleness", [])
    assert "staleness = 2 or more" in found.remedy
    assert "larger batches" in found.remedy
    assert limits(SHOP, H100, reference=True).staleness(2) > 1.4 * allowed
    more = SHOP.model_copy(update={"groups_per_step": 16})
    assert planned(1.4 * allowed, workload=more, ranks_max=2).limit != "staleness"


def test_a_target_just_below_it_that_no_run_reaches_names_staleness_too():
    found = planned(0.999 * limits(SHOP, H100, reference=True).staleness(1), ranks_max=12)
    assert (found.ranks, found.limit) == (None, "staleness")
    assert "come closest" in found.remedy


def test_too_few_ranks_are_told_how_many_the_bound_asks_for():
    strategy = OURS.model_copy(update={"staleness": 50})
    found = planned(12_000, strategy, ranks_max=4)
    assert found.ranks is None
    assert found.limit in ("rollout", "training")
    enough = int(found.remedy.split("allow ")[1].split()[0])
    work = limits(SHOP, H100, reference=True)
    rates = {n: min(work.rollout(work.split(n)), work.training(n - work.split(n))) for n in (enough - 1, enough)}
    assert rates[enough - 1] < 12_000 <= rates[enough]


def test_environments_limit_where_there_are_few():
    found = planned(2_000, hardware=H100.model_copy(update={"environment_slots": 2}))
    assert (found.ranks, found.limit) == (None, "environments")
    assert "environment_slots" in found.remedy


def test_ranks_that_take_turns_are_planned_too():
    found = planned(500, ours(["mode=sync"]))
    assert found.ranks is not None
    assert all(candidate.rollout_ranks == candidate.training_ranks for candidate in found.candidates)


@pytest.mark.parametrize(
    ("target", "ranks_max", "overrides", "problem"),
    [
        (0.0, 8, [], "target = 0 is no rate"),
        (float("nan"), 8, [], "target = nan is no rate"),
        (100.0, 1, [], "ranks_max = 1 is less than a run needs; give 2"),
        (100.0, 5, ["rollout_ranks=5"], "ranks_max = 5 is less than a run needs; give 6"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(target, ranks_max, overrides, problem):
    with pytest.raises(UsageError, match=problem):
        planned(target, ours(overrides), ranks_max=ranks_max)
