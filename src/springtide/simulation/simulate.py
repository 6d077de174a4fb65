"""A modelled run: the controller, scheduler and dispatch of a real one, with modelled engines, trainer and episodes."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from springtide.core.errors import UsageError
from springtide.ports.engine import Engine, EngineStats
from springtide.ports.executor import Executor
from springtide.ports.journal import Journal
from springtide.runtime.admission import Admission
from springtide.runtime.clock import LoopClock
from springtide.runtime.controller import Controller
from springtide.runtime.cost_feed import cost_feeds
from springtide.runtime.dispatch import Dispatch, lanes
from springtide.runtime.episodes import Episodes
from springtide.runtime.mover import Mover
from springtide.runtime.observer import Observer, Observers
from springtide.runtime.priorities import feeds, rule_of
from springtide.runtime.publication import Publication
from springtide.runtime.readiness import ReadinessFeed
from springtide.runtime.roles import Roles, Splitter
from springtide.runtime.stash import Stash
from springtide.scheduling import retention
from springtide.scheduling.admission import ConcurrencyLaw
from springtide.scheduling.config import SchedulingConfig
from springtide.scheduling.cost_fold import CostFold
from springtide.scheduling.costs import CurrentCosts, given
from springtide.scheduling.elasticity import Demand, Elasticity, Rates
from springtide.scheduling.events import Boundary, ProcessStarted, RankDied, RunStarted
from springtide.scheduling.membership import Membership
from springtide.scheduling.milestones import Milestones
from springtide.scheduling.refresh import Refresh
from springtide.scheduling.residency import Residency
from springtide.scheduling.retention import RetentionPolicy
from springtide.scheduling.scheduler import Scheduler
from springtide.simulation.cluster import Cluster
from springtide.simulation.failure import Deaths, Failure, require_mortal, schedule
from springtide.simulation.multi_version import VersionedDispatch, VersionedEngine
from springtide.simulation.outcomes import Outcomes, Steps
from springtide.simulation.over_provision import OverProvision, Turns
from springtide.simulation.script import Scripts, Work
from springtide.simulation.stack import ModelledStack, Stack
from springtide.simulation.stand_ins import NoCheckpoints, NoJournal, Tasks, no_evaluator
from springtide.simulation.strategy import Strategy
from springtide.simulation.timeline import Timeline
from springtide.simulation.virtual_loop import run_virtual
from springtide.telemetry.ledger import Ledger

REFRESH_CHUNK = 1024
"""Tokens refreshed at a time: less than a visit's decode steps take."""


class Simulation:
    """One modelled run. `main` drives it to its end on the loop it is awaited on: virtual, or real for emulation.

    `journal` is told what a real one is told. `scheduling`: settings of the scheduler that neither the workload nor the
    strategy has.
    """

    def __init__(
        self,
        workload: Work,
        cluster: Cluster,
        strategy: Strategy,
        *,
        seed: int,
        steps: int,
        warm_steps: int = 0,
        timeline: Timeline | None = None,
        policy: Callable[[CurrentCosts], RetentionPolicy] | None = None,
        splitter: Callable[[Rates], Splitter] | None = None,
        journal: Journal | None = None,
        stack: Stack | None = None,
        scheduling: Mapping[str, Any] | None = None,
        failures: Sequence[Failure] = (),
        deadline: float | None = None,
        costs: CurrentCosts | CostFold | None = None,
    ) -> None:
        """`policy` makes each rank's policy of retention, `splitter` that of elasticity, instead of the strategy's;
        `stack` is what the run is played on, if not modelled ranks. `failures`: of modelled ranks, any of which may
        have to take another's role then; `deadline` is that of `Dispatch`. `costs` are what policies go by: some that
        stay, or that are fitted, instead of the strategy's."""
        moves = splitter is not None or elastic(strategy)
        rollout = strategy.rollout_ranks or (cluster.ranks // 2 if moves else cluster.ranks)
        _refuse(strategy, cluster, rollout, moves=moves)
        mortal = bool(failures) or deadline is not None
        if mortal:
            require_mortal(failures, cluster, strategy)
        self._failures, self._deadline, self._timeline = failures, deadline, timeline
        rolling = cluster.ranks if moves else rollout
        self._workload, self._strategy = workload, strategy
        self._policy = policy
        self._splitter = splitter or (Elasticity if moves else None)
        if costs is None:
            costs = given(cluster.costs) if strategy.costs == "given" else CostFold(cluster.costs)
        self._fold = costs if isinstance(costs, CostFold) else None
        self._costs = costs.now if isinstance(costs, CostFold) else costs
        self._warm = warm_steps
        colocated = rollout == cluster.ranks
        self._stack: Stack = stack or ModelledStack(
            cluster,
            strategy,
            engines=cluster.ranks if mortal else rolling,
            training=cluster.ranks if colocated else cluster.ranks - rollout,
            colocated=colocated,
            updates=workload.updates_per_step,
            timeline=timeline,
            expected=self._costs,
        )
        self.trainer, self.engines = self._stack.trainer, self._stack.engines
        self._cluster = cluster
        self._membership = Membership.of(cluster.ranks, rollout)
        self._deaths: list[Deaths] = []
        self._law = _law(cluster, strategy, self._costs)
        self._scripts = Scripts(workload, seed)
        self._journal: Journal = journal or NoJournal()
        self._config = self._configured(warm_steps + steps, rolling=rolling, more=scheduling)
        self._priority = rule_of(self._config)

    def _configured(self, steps: int, *, rolling: int, more: Mapping[str, Any] | None) -> SchedulingConfig:
        workload, strategy = self._workload, self._strategy
        most = strategy.concurrency_per_rank * rolling if strategy.admission == "fixed" else sys.maxsize
        return SchedulingConfig(
            mode="async" if strategy.surplus > 1 else strategy.mode,
            groups_per_step=workload.groups_per_step,
            group_size=workload.group_size,
            steps=steps,
            staleness=strategy.staleness,
            max_concurrent=min(most, self._cluster.environment_slots),
            batchwise=strategy.batchwise,
            priority=strategy.priority,
            aging=strategy.aging,
            **{"min_valid": 1, "group_deadline": 1e9, **(more or {})},
        )

    async def main(self) -> Outcomes:
        clock = LoopClock()
        ledger = Ledger(clock.now)
        for lane in ("journal", "trainer", *lanes(len(self.engines))):
            ledger.lane(lane).wait_for("start")
        executor = self._stack.executor(ledger, clock.now)
        steps = Steps(clock.now, ledger.seconds)
        dispatch = self._dispatch(executor, clock, ledger)
        controller = self._controller(clock, ledger, executor, dispatch, steps)
        controller.mover = Mover(
            dispatch=dispatch,
            executor=executor,
            membership=self._membership,
            steps=controller.steps,
            resize=self._stack.resize,
            restart=self._stack.restart,
            spawn=controller.spawn,
        )
        controller.turns = self._strategy.mode == "async"
        self._set_up_policies(controller, dispatch, clock)
        dispatch.died = lambda rank, epoch: controller.post(RankDied(rank, epoch))
        schedule(self._failures, membership=lambda: controller.scheduler.membership, post=controller.post)
        begun = clock.now()
        try:
            await controller.run([RunStarted(Boundary()), ProcessStarted(0)])
        finally:
            await executor.close()
        for deaths in self._deaths:
            deaths.finish()
        return self._outcomes([end - begun for end in steps.ends], steps, ledger, dispatch.stats)

    def _dispatch(self, executor: Executor, clock: LoopClock, ledger: Ledger) -> Dispatch:
        decode_steps = self._strategy.decode_steps
        if self._strategy.versions == "own":
            return VersionedDispatch(
                engines=[engine for engine in self.engines if isinstance(engine, VersionedEngine)],
                executor=executor,
                clock=clock,
                ledger=ledger,
                decode_steps=decode_steps,
            )
        return Dispatch(
            engines=self.engines,
            executor=executor,
            clock=clock,
            ledger=ledger,
            lockstep=False,
            decode_steps=decode_steps,
            residency=self._residency,
            deadline=self._deadline,
            refresh=Refresh(REFRESH_CHUNK) if self._strategy.kv == "refresh" else None,
            priority=self._priority,
        )

    def _scheduler(self) -> Scheduler:
        milestones = Milestones(last=self._config.steps, checkpoint_every=self._config.steps + 1)
        if self._strategy.surplus > 1:
            return OverProvision(self._config, milestones, surplus=self._strategy.surplus)
        return Scheduler(self._config, milestones, membership=self._membership)

    def _controller(
        self, clock: LoopClock, ledger: Ledger, executor: Executor, dispatch: Dispatch, steps: Steps
    ) -> Controller:
        player = self._stack.player(scripts=self._scripts, sampler=dispatch, clock=clock)
        steps.split = lambda: dispatch.rollout_ranks
        scheduler = self._scheduler()
        observers: list[Observer] = [steps, ReadinessFeed(dispatch.readiness, clock.now)]
        observers += feeds(self._priority, dispatch, scheduler, clock.now)
        observers += cost_feeds(self._fold, dispatch, executor)
        if isinstance(executor, Turns):
            observers.append(executor)
        if self._timeline is not None and self._failures:
            self._deaths.append(Deaths(self._timeline, lanes(len(self.engines)), clock.now))
        observers += self._deaths
        controller = Controller(
            scheduler=scheduler,
            journal=self._journal,
            executor=executor,
            clock=clock,
            ledger=ledger,
            trainer=self.trainer,
            dispatch=dispatch,
            publication=Publication(trainer=self.trainer, dispatch=dispatch, executor=executor, kv=self._strategy.kv),
            evaluator=no_evaluator(player, dispatch),
            checkpoints=NoCheckpoints(),
            stash=Stash(),
            observers=Observers(observers),
        )
        controller.episodes = Episodes(
            player=player,
            source=Tasks(),
            dispatch=dispatch,
            clock=clock,
            temperature=1.0,
            post=controller.post_member,
            fail=controller.fail,
        )
        return controller

    def _set_up_policies(self, controller: Controller, dispatch: Dispatch, clock: LoopClock) -> None:
        fold, cluster = dispatch.readiness, self._cluster
        if self._law is not None:
            controller.admission = Admission(
                fold, law=self._law, ranks=lambda: max(1, dispatch.rollout_ranks), now=clock.now, post=controller.post
            )
        if self._splitter is not None:
            batch = self._config.groups_per_step * self._config.group_size
            live = (self._config.staleness + 1) * batch
            controller.roles = Roles(
                fold,
                self._splitter(Rates(costs=self._costs, kv_tokens=cluster.kv_tokens, max_batch=cluster.max_batch)),
                demand=Demand(
                    ranks=cluster.ranks, batch=batch, live=live, reference=self._strategy.reference, turns=True
                ),
                membership=lambda: controller.scheduler.membership,
                now=clock.now,
                post=controller.post,
            )

    def _residency(self, engine: Engine) -> Residency | None:
        if self._policy is not None:
            policy: RetentionPolicy | None = self._policy(self._costs)
        else:
            policy = retention.policy(self._strategy.retention, self._costs, self._scripts.pause)
        if policy is None:
            return None
        return Residency(
            policy,
            capacity=self._cluster.kv_tokens,
            host=self._cluster.host_tokens if self._strategy.evicts == "warm" else 0,
            max_batch=self._cluster.max_batch,
            decode_steps=self._strategy.decode_steps,
            patience=self._priority.patience,
        )

    def _outcomes(self, ends: list[float], steps: Steps, ledger: Ledger, stats: EngineStats) -> Outcomes:
        begin = ends[self._warm - 1] if self._warm else 0.0
        seconds = ends[-1] - begin
        groups = self._workload.groups_per_step
        return Outcomes(
            goodput=sum(steps.tokens[self._warm :]) / seconds,
            seconds=seconds,
            step_ends=tuple(ends),
            trained_tokens=tuple(steps.tokens),
            staleness=tuple(steps.staleness[self._warm * groups :]),
            splits=tuple(steps.splits),
            ledger=ledger.seconds(),
            step_ledgers=tuple(steps.books),
            stats=stats,
        )


def elastic(strategy: Strategy) -> bool:
    return strategy.elasticity != "static"


def _refuse(strategy: Strategy, cluster: Cluster, rollout: int, *, moves: bool) -> None:
    """UsageError for what does not go together."""
    if rollout > cluster.ranks:
        raise UsageError(f"rollout_ranks = {rollout}, but '{cluster.name}' has {cluster.ranks} ranks; name no more.")
    if strategy.surplus > 1 and (strategy.mode == "async" or rollout < cluster.ranks):
        raise UsageError(f"surplus = {strategy.surplus:g} is for ranks that take turns; set mode = sync.")
    if strategy.versions == "newest":
        return
    if strategy.mode == "sync" or moves or strategy.retention != "lru" or rollout <= strategy.staleness:
        raise UsageError(
            f"versions = own needs mode = async, elasticity = static, retention = lru and at least "
            f"{strategy.staleness + 1} rollout_ranks, one per version."
        )


def _law(cluster: Cluster, strategy: Strategy, costs: CurrentCosts) -> ConcurrencyLaw | None:
    if strategy.admission == "fixed":
        return None
    return ConcurrencyLaw(
        costs=costs,
        kv_tokens=cluster.kv_tokens,
        host_tokens=cluster.host_tokens if strategy.evicts == "warm" else 0,
        max_batch=cluster.max_batch,
    )


def simulate(
    workload: Work,
    cluster: Cluster,
    strategy: Strategy,
    *,
    seed: int,
    steps: int,
    warm_steps: int = 0,
    timeline: Timeline | None = None,
    policy: Callable[[CurrentCosts], RetentionPolicy] | None = None,
    splitter: Callable[[Rates], Splitter] | None = None,
    failures: Sequence[Failure] = (),
) -> Outcomes:
    """The modelled run on the virtual clock (L2). UsageError for what does not go together."""
    simulation = Simulation(
        workload,
        cluster,
        strategy,
        seed=seed,
        steps=steps,
        warm_steps=warm_steps,
        timeline=timeline,
        policy=policy,
        splitter=splitter,
        failures=failures,
    )
    outcomes, _ = run_virtual(simulation.main)
    return outcomes
