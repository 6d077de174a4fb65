"""A modelled run is the real controller on modelled hardware: it keeps the real one's rules and its own bound."""

import pytest

from springtide.core.errors import UsageError
from springtide.simulation.bound import bound
from springtide.simulation.cluster import cluster
from springtide.simulation.simulate import simulate
from springtide.simulation.strategy import Strategy
from springtide.simulation.workload import preset


def small(name, **changes):
    return preset(name).model_copy(update={"groups_per_step": 8, **changes})


H100 = cluster("h100-7b").model_copy(update={"ranks": 4})


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_same_seed_gives_the_same_run_and_another_seed_another(mode):
    strategy = Strategy(mode=mode, rollout_ranks=0 if mode == "sync" else 3)
    one, same, other = (simulate(small("shop"), H100, strategy, seed=seed, steps=3) for seed in (0, 0, 1))
    assert one == same
    assert one.step_ends != other.step_ends


@pytest.mark.parametrize("name", ["shop", "gui", "tau"])
@pytest.mark.parametrize(
    "strategy",
    [
        Strategy(mode="sync"),
        Strategy(mode="async", rollout_ranks=2),
        Strategy(mode="async", rollout_ranks=3, kv="keep", evicts="warm"),
        Strategy(mode="async", rollout_ranks=2, staleness=3),
    ],
    ids=["sync", "async", "keep", "staler"],
)
def test_staleness_is_bounded_time_adds_up_and_the_bound_is_not_beaten(name, strategy):
    work = small(name)
    run = simulate(work, H100, strategy, seed=0, steps=4, warm_steps=2)
    limit = 0 if strategy.mode == "sync" else strategy.staleness
    assert max(run.staleness) <= limit
    assert len(run.staleness) == 4 * work.groups_per_step
    end = run.step_ends[-1]
    for lane, bins in run.ledger.items():
        assert sum(bins.values()) == pytest.approx(end, abs=2.0), lane
        assert bins.get("unattributed", 0.0) <= 0.01 * end
    most = bound(work, H100, staleness=limit, reference=True)
    assert 0 < run.goodput <= most.fluid * 1.1


def test_more_ranks_than_there_are_is_refused():
    with pytest.raises(UsageError, match=r"rollout_ranks = 5, but '.*' has 4 ranks; name no more"):
        simulate(small("shop"), H100, Strategy(mode="async", rollout_ranks=5), seed=0, steps=1)
