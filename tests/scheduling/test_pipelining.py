"""Small schedules worked out by hand, and what holds for all of them."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.scheduling.pipeliner import candidates
from springtide.scheduling.pipelining import (
    Adapter,
    Ahead,
    FullBatch,
    Split,
    StageCosts,
    Swap,
    Unit,
    schedule,
)

COSTS = StageCosts(reference=1.0, forward=1.0, backward=2.0, swap=0.5)
"""A unit of n tokens takes n seconds of reference and 3 n of actor."""


def units(*pairs):
    return [Unit(ready, tokens) for ready, tokens in pairs]


def finish(mode, work, ranks, *, start=0.0, holding=0, costs=COSTS):
    return schedule(mode, work, ranks, costs, start, holding=holding).finish


def test_the_full_batch_waits_for_the_last_and_swaps_once_each_way():
    # Longest first: 3 to one rank, 2 and 1 to the other: 3 tokens each. 10 + 0.5 + 3 + 0.5 + 9.
    done = schedule(FullBatch(), units((0, 1), (0, 3), (10, 2)), 2, COSTS, 0.0)
    assert done.finish == 23.0
    assert done.seconds() == {"reference": 6.0, "actor": 18.0, "swap": 2.0, "wait": 2 * 10.0}


def test_swapping_works_on_what_is_there():
    # The rank has the reference at 0.5, scores from 1.5, has the actor at 3, trains until 6, has the reference again at
    # 6.5; the second: scored from 9 to 10, trained from 10.5.
    work = units((1.5, 1), (9, 1))
    assert finish(Swap(1), work, 1) == 13.5
    assert finish(FullBatch(), work, 1) == 9 + 0.5 + 2 + 0.5 + 6


def test_a_cycle_of_more_units_saves_swaps():
    work = units((0, 1), (0, 1), (0, 1), (0, 1))
    # Each cycle: swap, references, swap, actors.
    assert finish(Swap(1), work, 1) == 4 * (0.5 + 1 + 0.5 + 3)
    assert finish(Swap(2), work, 1) == 2 * (0.5 + 2 + 0.5 + 6)
    assert finish(Swap(4), work, 1) == finish(FullBatch(), work, 1) == 1 + 16
    # Two ranks share what is there, however many a cycle may take.
    assert finish(Swap(4), work, 2) == 1 + 8


def test_a_cycle_waits_for_another_unit_while_that_is_expected_to_cost_less_than_two_swaps():
    work = units((0.5, 1), (1.0, 1))
    # Alone: 0.5 + 1 + 0.5 + 3 = 5, then again 5. Together: from 1.0, 2 + 0.5 + 6.
    assert finish(Swap(2), work, 1) == 10.0
    assert finish(Swap(2, interval=0.5), work, 1) == 9.5
    # It does not come as expected: after two swaps' time the cycle begins, at 1.5.
    late = units((0.5, 1), (3.0, 1))
    assert finish(Swap(2, interval=0.5), late, 1) == 1.5 + 4.5 + 5
    # The last unit waits for nothing.
    assert finish(Swap(2, interval=0.5), units((0.5, 1)), 1) == 5.0


def test_split_ranks_keep_their_model_and_the_backward_pass_waits_for_the_log_probs():
    work = units((0, 2), (0, 2), (4, 2))
    # The reference, once it is there, scores until 2.5, 4.5 and 6.5. The actor: forward 0 to 2, backward 2.5 to 6.5;
    # forward 6.5 to 8.5, backward to 12.5; the third to 18.5.
    done = schedule(Split(1), work, 2, COSTS, 0.0)
    assert done.finish == 18.5
    assert done.holding == 1
    assert done.seconds()["swap"] == 0.5
    # In the next step the reference is still there: 0 to 2, so nobody waits.
    assert finish(Split(1), work, 2, holding=1) == 18.0


def test_leaving_a_split_takes_the_actor_back_to_its_rank():
    # One rank holds the reference already and saves a swap; both end with the actor: 2 + 0.5 + 6.
    done = schedule(FullBatch(), units((0, 2)), 2, COSTS, 0.0, holding=1)
    assert done.finish == 2 + 0.5 + 6
    assert done.holding == 0
    # The swap alone is what the other rank's optimizer waits for.
    assert finish(FullBatch(), [], 2, holding=1) == 0.5


def test_ahead_scores_what_comes_and_then_all_ranks_train():
    # Two ranks score on arrival: at 1.5 and 3.0; the last reference has begun at 2, so the first rank swaps by then.
    done = schedule(Ahead(2), units((0.5, 1), (2, 1)), 2, COSTS, 0.0)
    # From 2 the first rank swaps: 2.5, trains what was scored first until 5.5; the other swaps at 3: 3.5 to 6.5.
    assert done.finish == 6.5
    assert done.holding == 0
    assert done.seconds()["swap"] == 4 * 0.5


def test_ahead_with_fewer_ranks_trains_meanwhile_and_gets_them_back():
    # Rank 0 scores from 0.5 to 1.5, 2.5 and 3.5 and has the actor at 4. Rank 1: forward 0 to 1, backward 1.5 to 3.5;
    # the second 3.5 to 6.5; the third is rank 0's, 4 to 7. Split leaves it to rank 1, until 9.5.
    work = units((0, 1), (0, 1), (0, 1))
    assert finish(Ahead(1), work, 2) == 7.0
    assert finish(Split(1), work, 2) == 9.5


def test_ahead_of_no_number_takes_the_share_of_reference_work():
    # A quarter of all work: of two ranks a half, still one; of eight two.
    work = units((0, 1), (0, 2), (0, 3), (5, 1))
    assert finish(Ahead(), work, 2) == finish(Ahead(1), work, 2)
    assert finish(Ahead(), work, 8) == finish(Ahead(2), work, 8)


def test_an_adapter_needs_no_swap_and_streams():
    # Rank 0: 3 tokens from 0 to 12. Rank 1: 1 token from 0 to 4, the one of 6 from 6 to 10.
    done = schedule(Adapter(), units((0, 1), (0, 3), (6, 1)), 2, COSTS, 0.0)
    assert done.finish == 12.0
    assert done.seconds() == {"reference": 5.0, "actor": 15.0, "swap": 0.0, "wait": 4.0}


def test_without_a_reference_only_the_actor_works():
    costs = StageCosts(reference=0.0, forward=1.0, backward=2.0, swap=0.0)
    assert finish(Adapter(), units((0, 1), (0, 3), (6, 1)), 2, costs=costs) == 9.0


@pytest.mark.parametrize("mode", [Split(0), Split(2), Ahead(0), Ahead(3)])
def test_what_the_ranks_cannot_run_is_refused(mode):
    with pytest.raises(ValueError, match="of 2 ranks"):
        schedule(mode, [], 2, COSTS, 0.0)


seconds = st.integers(0, 80).map(lambda quarters: quarters / 4)
work = st.lists(st.builds(Unit, seconds, st.integers(1, 6)), min_size=1, max_size=14)


@st.composite
def cases(draw):
    """A mode with work and ranks that it can run on."""
    content, ranks = draw(work), draw(st.integers(1, 5))
    interval = draw(st.sampled_from([0.0, 0.25, 1.0, math.inf]))
    modes = [*candidates(len(content), ranks, interval=interval), Ahead(), Adapter()]
    costs = StageCosts(1.0, 1.0, 2.0, swap=draw(st.sampled_from([0.0, 0.5, 4.0])))
    return draw(st.sampled_from(modes)), content, ranks, costs, draw(seconds), draw(st.integers(0, ranks))


@given(cases())
def test_each_unit_is_scored_once_and_trained_once_on_ranks_that_do_one_thing_at_a_time(case):
    mode, content, ranks, costs, start, holding = case
    done = schedule(mode, content, ranks, costs, start, holding=holding)
    for stage in ("reference", "forward", "backward"):
        assert sorted(p.unit for p in done.passes if p.stage == stage) == list(range(len(content)))
    end = {(p.stage, p.unit): p.end for p in done.passes}
    for p in done.passes:
        assert p.begin >= start
        if p.stage != "swap":
            assert p.begin >= content[p.unit].ready
        if p.stage == "backward":
            assert p.begin >= max(end["reference", p.unit], end["forward", p.unit])
    for rank in range(ranks):
        own = sorted((p for p in done.passes if p.rank == rank), key=lambda p: (p.begin, p.end))
        assert all(after.begin >= before.end for before, after in pairwise(own))
        swaps_match_models(own, costs, begins_with_reference=rank < holding, ends_with=rank < done.holding)
    assert done.finish == max((p.end for p in done.passes), default=start)
    assert sum(done.seconds().values()) == pytest.approx(ranks * (done.finish - start))
    assert min(done.seconds().values()) > -1e-9


def swaps_match_models(own, costs, *, begins_with_reference, ends_with):
    holds = begins_with_reference
    if any(p.stage == "swap" for p in own):
        for p in own:
            if p.stage == "swap":
                assert p.end - p.begin == costs.swap
                holds = not holds
            else:
                assert holds == (p.stage == "reference")
        assert holds == ends_with


@given(cases())
def test_no_schedule_is_shorter_than_its_longest_unit_or_all_work_shared(case):
    mode, content, ranks, costs, start, holding = case
    finished = finish(mode, content, ranks, start=start, holding=holding, costs=costs)
    # Reference and forward pass of one unit may be at the same time, on two ranks.
    assert finished >= max(max(start, unit.ready) + 3 * unit.tokens for unit in content)
    assert finished >= start + 4 * sum(unit.tokens for unit in content) / ranks - 1e-9
    first = min(unit.ready for unit in content)
    assert finished >= first + 4 * sum(unit.tokens for unit in content) / ranks - 1e-9


@given(work, st.integers(1, 5), seconds, seconds, st.sampled_from(["full", "stream", "split", "ahead"]))
def test_a_later_start_never_ends_sooner(content, ranks, start, later, name):
    """For units of one size; with several, order is decided by what is there, and waiting can make a better one."""
    mode = {"full": FullBatch(), "stream": Adapter(), "split": Split(1), "ahead": Ahead()}[name]
    if name == "split" and ranks == 1:
        return
    alike = [unit._replace(tokens=2) for unit in content]
    assert finish(mode, alike, ranks, start=start) <= finish(mode, alike, ranks, start=start + later)


@given(work, st.integers(1, 5), seconds)
def test_streaming_is_never_worse_than_waiting_for_all_by_more_than_a_unit(content, ranks, start):
    longest = 4 * max(unit.tokens for unit in content)
    free = StageCosts(1.0, 1.0, 2.0, swap=0.0)
    assert finish(Adapter(), content, ranks, start=start) <= (
        finish(FullBatch(), content, ranks, start=start, costs=free) + longest
    )
