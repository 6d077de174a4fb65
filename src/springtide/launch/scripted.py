"""A modelled workload on real parts: the embedded engine and the trainer on a tiny model, a journal on disk, and
environments that sleep on the wall's clock (L0).

Turns, tokens, latencies, rewards and failures are those of the workload's scripts, so that the same run can be
simulated with costs that were measured here before (`launch/measurement.py`), and the two compared. Controller,
scheduler, policies and books are the simulation's own, which are those of any run.
"""

import asyncio
import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from springtide.core.errors import UsageError
from springtide.engines.config import TorchEngineConfig
from springtide.engines.torch_engine import TorchEngine
from springtide.policy.config import TinyModelConfig
from springtide.policy.device import kept_heap, set_lane_threads
from springtide.policy.model import build_tiny, served_copy
from springtide.ports.clock import Clock
from springtide.ports.sampler import Sampler
from springtide.runtime.executor import ThreadExecutor
from springtide.runtime.journal import SqliteJournal
from springtide.scheduling.config import StrictModel
from springtide.scheduling.cost_fold import CostFold
from springtide.simulation.cluster import Cluster
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.player import ScriptedPlayer
from springtide.simulation.script import Scripts
from springtide.simulation.simulate import Simulation
from springtide.simulation.strategy import Strategy
from springtide.simulation.tokens import require_appending, token_player
from springtide.simulation.workload import Workload
from springtide.telemetry.ledger import Ledger
from springtide.training.config import AlgorithmConfig, OptimizerConfig, TrainingConfig
from springtide.training.trainer import TorchTrainer

VOCABULARY = 512


class Machine(StrictModel):
    """The parts that scripts are played on here: one rank that rolls out and one that trains."""

    model: TinyModelConfig = TinyModelConfig(
        layers=4, hidden=192, heads=6, kv_heads=6, intermediate=576, max_context=4096
    )
    engine: TorchEngineConfig = TorchEngineConfig(max_batch=32)
    training: TrainingConfig = TrainingConfig(
        optimizer=OptimizerConfig(learning_rate=1e-5),
        algorithm=AlgorithmConfig(kl_coefficient=0.01),
        tokens_per_micro_batch=8192,
    )
    threads: int = Field(1, ge=1, description="Torch threads of each of the two lanes.")
    seed: int = 0

    @property
    def reference(self) -> bool:
        return self.training.algorithm.kl_coefficient > 0

    def build(self) -> Any:
        """The model, in float32 on the CPU."""
        return build_tiny(self.model, vocabulary_size=VOCABULARY, seed=self.seed)

    def make_engine(self, model: Any, strategy: Strategy) -> TorchEngine:
        changes = {"kv_at_update": strategy.kv, "decode_steps": strategy.decode_steps}
        return TorchEngine(served_copy(model, torch.float32), self.engine.model_copy(update=changes), self.seed)

    def make_trainer(self, model: Any, strategy: Strategy, *, steps: int) -> TorchTrainer:
        """Of a copy of `model`."""
        kept = strategy.kv == "keep"
        return TorchTrainer(copy.deepcopy(model), config=self.training, total_steps=steps, kept_kv=kept)

    def executor(self, ledger: Ledger) -> ThreadExecutor:
        return ThreadExecutor(ledger, on_lane_start=self._start_lane)

    def _start_lane(self, lane: str) -> None:
        set_lane_threads(1 if lane == "journal" else self.threads)


class RealStack:
    """Implements the Stack of a simulation."""

    def __init__(self, machine: Machine, strategy: Strategy, *, steps: int) -> None:
        model = machine.build()
        self._machine = machine
        self.engines = [machine.make_engine(model, strategy)]
        self.trainer = machine.make_trainer(model, strategy, steps=steps)

    def executor(self, ledger: Ledger, now: Callable[[], float]) -> ThreadExecutor:
        return self._machine.executor(ledger)

    def player(self, *, scripts: Scripts, sampler: Sampler, clock: Clock) -> ScriptedPlayer:
        return token_player(scripts=scripts, sampler=sampler, clock=clock, vocabulary=VOCABULARY)

    def resize(self, training: int, together: bool, lost: bool) -> None:
        raise NotImplementedError("a rank here does not change its role")

    def restart(self, rank: int) -> TorchEngine:
        raise NotImplementedError("a rank here lives and dies with its process")


def play(
    workload: Workload,
    cluster: Cluster,
    strategy: Strategy,
    machine: Machine,
    *,
    seed: int,
    steps: int,
    fold: CostFold | None = None,
) -> Outcomes:
    """The run of `simulate(workload, cluster, strategy, seed=seed, steps=steps)` with real parts.

    `cluster` is what was measured of `machine`; policies go by its costs, or by those of `fold`, which is fed with what
    the run takes. UsageError for what real parts cannot do: a
    window in the workload, ranks that change roles, pipelining, a reference that only one side has.
    """
    require_playable(workload, strategy, machine)
    with kept_heap(), tempfile.TemporaryDirectory() as scratch:
        journal = SqliteJournal(Path(scratch) / "journal.sqlite")
        try:
            stack = RealStack(machine, strategy, steps=steps)
            run = Simulation(
                workload, cluster, strategy, seed=seed, steps=steps, stack=stack, journal=journal, costs=fold
            )
            return asyncio.run(run.main())
        finally:
            journal.close()


def require_playable(workload: Workload, strategy: Strategy, machine: Machine) -> None:
    require_appending(workload)
    needed: dict[str, Any] = {
        "rollout_ranks": 1,
        "elasticity": "static",
        "pipelining": "full",
        "turnwise": False,
        "reference": machine.reference,
    }
    for name, value in needed.items():
        if getattr(strategy, name) != value:
            raise UsageError(
                f"{name} = {getattr(strategy, name)} is for modelled ranks only; real parts have {name} = {value}."
            )
    if workload.context > machine.model.max_context:
        raise UsageError(
            f"'{workload.name}' has contexts of {workload.context} tokens, and the model takes "
            f"{machine.model.max_context}; scale the workload down."
        )
