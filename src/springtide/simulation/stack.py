"""What a run of scripts is played on: engines, a trainer, an executor and a player. Here: modelled ones.

`launch/scripted.py` has real ones. Everything else of the run is the same for both.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from springtide.ports.clock import Clock
from springtide.ports.engine import Engine
from springtide.ports.executor import Executor
from springtide.ports.sampler import Sampler
from springtide.ports.trainer import Trainer
from springtide.rollout.episode import EpisodePlayer
from springtide.runtime.dispatch import lanes
from springtide.runtime.mover import SWITCH
from springtide.scheduling.costs import CurrentCosts, ServiceCosts
from springtide.simulation.barrier import TurnBarrier
from springtide.simulation.cluster import Cluster
from springtide.simulation.contention import CoreSharing
from springtide.simulation.engine import ModelledEngine
from springtide.simulation.executor import InlineExecutor
from springtide.simulation.multi_version import VersionedEngine
from springtide.simulation.over_provision import Turns
from springtide.simulation.player import ScriptedPlayer
from springtide.simulation.script import Scripts
from springtide.simulation.strategy import Strategy
from springtide.simulation.timeline import Timeline
from springtide.simulation.trainer import ModelledTrainer
from springtide.telemetry.ledger import Ledger


class Stack(Protocol):
    """`executor` and `player` are asked for once, on the loop of the run."""

    @property
    def engines(self) -> Sequence[Engine]: ...

    @property
    def trainer(self) -> Trainer: ...

    def executor(self, ledger: Ledger, now: Callable[[], float]) -> Executor: ...

    def player(self, *, scripts: Scripts, sampler: Sampler, clock: Clock) -> EpisodePlayer: ...

    def resize(self, training: int, together: bool, lost: bool) -> None:
        """From now on so many ranks train, and roll out in turns or not; `lost`: one has died, and what it held is done
        again."""
        ...

    def restart(self, rank: int) -> Engine:
        """The empty engine of a rank that was dead."""
        ...


class ModelledStack:
    """`engines` ranks that can roll out, and `training` that train. `colocated`: these are the same. `updates`: of the
    optimizer, per train step. `expected`: the costs that the trainer decides by, if not the cluster's."""

    def __init__(
        self,
        cluster: Cluster,
        strategy: Strategy,
        *,
        engines: int,
        training: int,
        colocated: bool,
        updates: int = 1,
        timeline: Timeline | None = None,
        expected: CurrentCosts | None = None,
    ) -> None:
        self._cluster, self._strategy, self._timeline = cluster, strategy, timeline
        self.trainer = ModelledTrainer(
            cluster,
            ranks=training,
            reference=strategy.reference,
            colocated=colocated,
            pipelining=strategy.pipelining,
            updates=updates,
            now=loop_time,
            expected=expected,
        )
        self.engines = [self._made() for _ in range(engines)]
        self._lanes = {lane: number for number, lane in enumerate(lanes(engines))}

    def executor(self, ledger: Ledger, now: Callable[[], float]) -> InlineExecutor:
        watch = None if self._timeline is None else self._timeline.watch(now)
        sharing = None
        if self._cluster.contention is not None:
            sharing = CoreSharing(self._cluster.contention, now)
        kind = Turns if self._strategy.surplus > 1 else InlineExecutor
        return kind(self._cost, ledger, watch=watch, sharing=sharing)

    def player(self, *, scripts: Scripts, sampler: Sampler, clock: Clock) -> ScriptedPlayer:
        barrier = TurnBarrier() if self._strategy.turnwise else None
        return ScriptedPlayer(scripts=scripts, sampler=sampler, clock=clock, barrier=barrier)

    def change(self, costs: ServiceCosts) -> None:
        """From now on work takes this; what policies expect is another matter."""
        self._cluster = self._cluster.model_copy(update={"costs": costs})
        self.trainer.change(costs)
        for engine in self.engines:
            engine.meter.costs = costs

    def resize(self, training: int, together: bool, lost: bool) -> None:
        self.trainer.resize(training, colocated=together, lost=lost)

    def restart(self, rank: int) -> ModelledEngine:
        self.engines[rank] = self._made()
        return self.engines[rank]

    def _made(self) -> ModelledEngine:
        kind = VersionedEngine if self._strategy.versions == "own" else ModelledEngine
        return kind(self._cluster, now=loop_time, evicts=self._strategy.evicts, gap=self._strategy.kv_gap)

    def _cost(self, lane: str, name: str) -> float | Mapping[str, float]:
        if name == "load_weights":
            return self._cluster.costs.publish
        if name == SWITCH:
            return self._cluster.costs.role_switch
        if lane == "trainer":
            return self.trainer.spent if name == "train" else 0.0
        works = lane in self._lanes and name in ("generate", "refresh")
        return self.engines[self._lanes[lane]].spent if works else 0.0


def loop_time() -> float:
    """On the loop of the run."""
    return asyncio.get_running_loop().time()
