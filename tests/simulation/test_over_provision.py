"""Over-provision and abort: a barrier per step, more in flight than a step needs, nothing lost or too old."""

import pytest

from springtide.core.errors import UsageError
from springtide.simulation.cluster import cluster
from springtide.simulation.simulate import simulate
from springtide.simulation.strategy import Strategy
from springtide.simulation.timeline import Timeline
from springtide.simulation.workload import preset

WORK = preset("tau", 8)
HARDWARE = cluster("h100-14b")


def run(surplus, timeline=None, **changes):
    strategy = Strategy(mode="sync", surplus=surplus, concurrency_per_rank=32, **changes)
    return simulate(WORK, HARDWARE, strategy, seed=0, steps=5, timeline=timeline)


def test_stragglers_no_longer_hold_a_step_up_and_no_token_is_too_old():
    plain, more, most = run(1.0), run(1.5), run(2.0)
    assert plain.goodput < more.goodput < most.goodput
    assert max(plain.staleness) == 0
    assert max(more.staleness) == max(most.staleness) == 1
    assert len(most.staleness) == 5 * WORK.groups_per_step


def test_what_is_continued_is_computed_again_under_the_new_weights():
    assert run(1.0).stats.reprefilled == 0
    assert run(1.5).stats.reprefilled > 0


def test_held_to_no_staleness_it_is_the_barrier_alone():
    assert run(2.0, staleness=0).goodput == pytest.approx(run(1.0).goodput, rel=0.02)


def test_no_rank_generates_while_the_ranks_train():
    timeline = Timeline()
    run(1.5, timeline)
    steps = [span for span in timeline.spans if span.lane == "trainer" and span.kind == "actor"]
    assert len(steps) == 5
    for step in steps:
        for span in timeline.spans:
            if span.kind == "decode":
                overlap = min(step.start + step.seconds, span.start + span.seconds) - max(step.start, span.start)
                assert overlap < 1.0, "but for the visit that the decision came in"


def test_ranks_that_only_train_have_no_barrier():
    with pytest.raises(UsageError, match="mode = sync"):
        simulate(WORK, HARDWARE, Strategy(surplus=1.5, rollout_ranks=4), seed=0, steps=1)
