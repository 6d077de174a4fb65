"""A run of scripts on real parts does what the simulated run does; how long that takes is a benchmark's matter."""

import pytest

from springtide.core.errors import UsageError
from springtide.engines.config import TorchEngineConfig
from springtide.launch.measurement import fitted, measured
from springtide.launch.scripted import Machine, RealStack, play, require_playable
from springtide.policy.config import TinyModelConfig
from springtide.scheduling.costs import ServiceCosts
from springtide.simulation.cluster import Cluster
from springtide.simulation.executor import InlineExecutor
from springtide.simulation.simulate import Simulation, simulate
from springtide.simulation.strategy import Strategy
from springtide.simulation.virtual_loop import run_virtual
from springtide.simulation.workload import Workload, preset

MACHINE = Machine(
    model=TinyModelConfig(layers=1, hidden=16, heads=2, kv_heads=2, intermediate=16, max_context=256),
    engine=TorchEngineConfig(capacity_tokens=8192, max_batch=8),
)
NOTHING = {"type": "constant", "value": 0.0}
WORK = Workload.model_validate(
    {
        "name": "small",
        "about": "",
        "system": 8,
        "task": {"type": "uniform", "start": 4, "stop": 20},
        "turns": {"type": "uniform", "start": 1, "stop": 4},
        "append": {"type": "uniform", "start": 2, "stop": 10},
        "output": {"type": "uniform", "start": 2, "stop": 12},
        "latency": NOTHING,
        "reset": NOTHING,
        "context": 200,
        "failure": 0.1,
        "group_size": 3,
        "groups_per_step": 2,
    }
)
COSTS = ServiceCosts(**(dict.fromkeys(ServiceCosts.model_fields, 0.0) | {"decode_base": 0.01, "forward_token": 0.001}))
CLUSTER = Cluster(
    name="here", about="", ranks=2, kv_tokens=8192, host_tokens=0, max_batch=8, shares_prompts="group", costs=COSTS
)
TURNS = Strategy(mode="sync", rollout_ranks=1, kv="keep")


class TimelessStack(RealStack):
    """The real parts on a virtual clock: each visit takes a second."""

    def executor(self, ledger, now):
        return InlineExecutor(lambda lane, name: 1.0 if name == "generate" else 0.0, ledger)


def on_real_parts(strategy, seed, steps):
    stack = TimelessStack(MACHINE, strategy, steps=steps)
    return run_virtual(Simulation(WORK, CLUSTER, strategy, seed=seed, steps=steps, stack=stack).main)[0]


@pytest.mark.parametrize("kv", ["keep", "recompute"])
def test_the_same_tokens_are_sampled_computed_and_trained_as_in_the_simulation(kv):
    strategy = TURNS.model_copy(update={"kv": kv})
    modelled = simulate(WORK, CLUSTER, strategy, seed=4, steps=2)
    real = on_real_parts(strategy, 4, 2)
    assert real.trained_tokens == modelled.trained_tokens
    assert real.staleness == modelled.staleness
    assert real.stats.decoded == modelled.stats.decoded
    assert real.stats.reprefilled == modelled.stats.reprefilled == 0
    # A turn's newest token is always computed, and the last token that was sampled has no KV yet.
    assert modelled.stats.prefilled <= real.stats.prefilled <= 1.2 * modelled.stats.prefilled


def test_in_async_no_group_is_staler_than_the_bound():
    real = on_real_parts(Strategy(rollout_ranks=1, staleness=1, concurrency_per_rank=6), 0, 3)
    assert len(real.step_ends) == 3
    assert max(real.staleness) <= 1


def test_on_the_walls_clock_it_trains_what_the_simulation_trains():
    real = play(WORK, CLUSTER, TURNS, MACHINE, seed=1, steps=1)
    assert real.trained_tokens == simulate(WORK, CLUSTER, TURNS, seed=1, steps=1).trained_tokens
    assert 0 < real.ledger["engine"]["generate"] < real.step_ends[0]
    assert real.ledger["journal"]["append"] > 0, "the journal is a real one"


def test_a_machine_is_measured():
    found = measured(MACHINE, WORK, seed=9)
    costs = found.costs
    assert min(costs.decode_base, costs.forward_token + costs.optimizer, costs.publish) > 0
    assert found.contention is not None
    assert found.ranks == 2


def test_costs_are_fitted_to_a_run():
    there = fitted(MACHINE, WORK, CLUSTER, seed=9, steps=2)
    given, found = CLUSTER.costs, there.costs
    assert found.decode_base != given.decode_base
    assert found.forward_token != given.forward_token
    assert found.publish != given.publish
    assert there.contention == CLUSTER.contention


@pytest.mark.parametrize(
    ("workload", "changes", "named"),
    [
        (preset("gui"), {}, "window"),
        (WORK, {"pipelining": "adaptive"}, "pipelining"),
        (WORK, {"reference": False}, "reference"),
        (WORK, {"rollout_ranks": 2}, "rollout_ranks"),
        (WORK.model_copy(update={"context": 4096}), {}, "4096"),
    ],
)
def test_what_real_parts_cannot_do_is_said(workload, changes, named):
    with pytest.raises(UsageError, match=named):
        require_playable(workload, TURNS.model_copy(update=changes), MACHINE)
