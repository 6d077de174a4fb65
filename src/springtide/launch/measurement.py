"""What this machine is, as a modelled cluster: costs of its engine and its trainer, and how they slow each other down.

`measured` looks at passes and steps of known size, `fitted` from there on at a run: what is warm there, and what comes
between two passes, is not the same.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from threading import Event
from typing import TypeVar

from springtide.core.group import Group
from springtide.engines.calibration import Calibration
from springtide.engines.torch_engine import TorchEngine
from springtide.launch.prior import prior
from springtide.launch.scripted import VOCABULARY, Machine, play
from springtide.policy.device import kept_heap, set_lane_threads
from springtide.scheduling.cost_fold import RELOADED, SERVED, CostFold
from springtide.scheduling.costs import ServiceCosts
from springtide.simulation.cluster import Cluster
from springtide.simulation.contention import Contention
from springtide.simulation.script import Scripts
from springtide.simulation.strategy import Strategy
from springtide.simulation.tokens import require_appending, token_group
from springtide.simulation.workload import Workload
from springtide.training.calibration import REPEATS, TrainingCalibration
from springtide.training.trainer import TorchTrainer

PASSES = 5
STEPS = 10_000
"""More than the calibration takes: for the schedule of the learning rate, which costs nothing."""
DRAWN = 16
"""Groups of which three are trained on."""
SLOTS = 4096
"""Environments that only sleep are not the limit."""

FITTED = (*SERVED, *RELOADED, "optimizer", "publish")
"""Costs that a machine has and that a measurement may miss."""

T = TypeVar("T")


def measured(machine: Machine, workload: Workload, *, seed: int) -> Cluster:
    """This machine as it would run `workload`: training is measured on groups of that kind, drawn with `seed`, which
    must be no seed that is predicted.

    UsageError for a workload with a window.
    """
    require_appending(workload)
    with kept_heap(), _lane(machine) as rollout, _lane(machine) as training:
        model, strategy = machine.build(), Strategy()
        engine = rollout.submit(machine.make_engine, model, strategy).result()
        trainer = training.submit(machine.make_trainer, model, strategy, steps=STEPS).result()
        served, trained = Calibration(engine), TrainingCalibration(trainer, typical_groups(workload, seed))
        costs = rollout.submit(served.costs).result().model_dump()
        costs |= training.submit(trained.costs, reference=machine.reference).result()
        costs["publish"] = min(rollout.submit(_publish, engine, trainer, served).result() for _ in range(REPEATS))
        sharing = _contention(rollout, served.work, training=training, step=trained.step)
    return Cluster(
        name="here",
        about="this machine: one rank in rollout and one that trains, on one host",
        ranks=2,
        kv_tokens=engine.capabilities.capacity_tokens,
        host_tokens=machine.engine.host_capacity_tokens,
        max_batch=machine.engine.max_batch,
        environment_slots=SLOTS,
        micro_batch_tokens=machine.training.tokens_per_micro_batch,
        shares_prompts="group",
        contention=sharing,
        costs=ServiceCosts(**costs),
    )


def fitted(machine: Machine, workload: Workload, cluster: Cluster, *, seed: int, steps: int) -> Cluster:
    """The `cluster` that was measured, with costs fitted to a run of `workload`, which no prediction should be of.

    In that run rollout and training take turns, so that it says what each takes alone; the contention is the measured
    one. UsageError for what cannot be played.
    """
    fold = CostFold(cluster.costs.model_copy(update=_guessed(cluster.costs)))
    strategy = Strategy(rollout_ranks=1, concurrency_per_rank=cluster.max_batch, kv="keep", staleness=0, decode_steps=8)
    play(workload, cluster, strategy, machine, seed=seed, steps=steps, fold=fold)
    return cluster.model_copy(update={"costs": fold.now()})


def _guessed(costs: ServiceCosts) -> dict[str, float]:
    """What came out as nothing, as a fit would leave it there."""
    guesses = prior(costs)
    return {name: getattr(guesses, name) for name in FITTED if getattr(costs, name) == 0}


def typical_groups(workload: Workload, seed: int) -> list[Group]:
    """Of those drawn with `seed` the shortest, the median and the longest."""
    scripts = Scripts(workload, seed)
    groups = [token_group(scripts, task, vocabulary=VOCABULARY) for task in range(DRAWN)]
    groups.sort(key=lambda group: sum(sum(member.lengths) for member in group.members))
    return [groups[0], groups[DRAWN // 2], groups[-1]]


def _lane(machine: Machine) -> ThreadPoolExecutor:
    """A thread as a lane of a run is."""
    return ThreadPoolExecutor(1, initializer=set_lane_threads, initargs=(machine.threads,))


def _publish(engine: TorchEngine, trainer: TorchTrainer, calibration: Calibration) -> float:
    return calibration.timed(
        lambda: engine.load_weights(number=trainer.version.number, weights=trainer.publish(), kv="keep")
    )


def _contention(
    rollout: ThreadPoolExecutor,
    serve: Callable[[], float],
    *,
    training: ThreadPoolExecutor,
    step: Callable[[], float],
) -> Contention:
    """Medians of both sides at work at once, over those of each alone."""
    alone = median(rollout.submit(serve).result() for _ in range(PASSES))
    step_alone = median(training.submit(step).result() for _ in range(REPEATS))
    done = Event()

    def served() -> list[float]:
        found = []
        while not done.is_set():
            found.append(serve())
        return found

    passes = rollout.submit(served)
    try:
        steps = [training.submit(step).result() for _ in range(REPEATS)]
    finally:
        done.set()
    return Contention(rollout=max(1.0, median(passes.result()) / alone), training=max(1.0, median(steps) / step_alone))
