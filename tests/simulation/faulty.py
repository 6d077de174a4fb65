"""Modelled runs in which everything goes wrong that may: a random case, its faults, and the run with its books."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from simulation.invariants import Books, ViolationError
from simulation.rank_books import RankBooks
from springtide.core.errors import SpringtideError
from springtide.core.trajectory import Trajectory
from springtide.runtime.clock import LoopClock
from springtide.runtime.controller import Controller
from springtide.runtime.dispatch import Dispatch
from springtide.scheduling.commands import StartMember
from springtide.scheduling.costs import ServiceCosts
from springtide.scheduling.events import ConcurrencySet, Event, MemberFinished, RolesSet
from springtide.simulation.cluster import Cluster
from springtide.simulation.simulate import Simulation, elastic
from springtide.simulation.strategy import Strategy
from springtide.simulation.virtual_loop import Killed, StuckError, run_virtual
from springtide.simulation.workload import Workload

RETENTION = ["lru", "lru-ordered", "cap-0.5", "ttl-4", "decay-4", "min-waste", "residency-0.8", "oracle", "break-even"]
MODES = ("full", "swap", "swap-2", "split-1", "ahead", "ahead-1", "adapter", "adaptive")
PRIORITIES = ("oldest", "value", "longest", "switch")
CALLBACKS = 400_000
"""Of the event loop; the runs here take a tenth of it."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Shares of messages that come twice, late again, or from an earlier process; numbers of settings from outside."""

    twice: float = 0.0
    late: float = 0.0
    foreign: float = 0.0
    limits: int = 0
    moves: int = 0


@dataclass(frozen=True, kw_only=True)
class Case:
    seed: int
    workload: Workload
    cluster: Cluster
    strategy: Strategy
    steps: int
    faults: Faults = Faults()
    scheduling: dict[str, Any] = field(default_factory=dict)

    def but(self, **changes: Any) -> "Case":
        """With another strategy."""
        return replace(self, strategy=Strategy.model_validate(self.strategy.model_dump() | changes))


def case(seed: int) -> Case:
    """The run of a number."""
    r = random.Random(seed)
    workload = _workload(r)
    cluster = _cluster(r, workload)
    faults = Faults(
        twice=r.choice((0.0, 0.2)),
        late=r.choice((0.0, 0.2)),
        foreign=r.choice((0.0, 0.1)),
        limits=r.choice((0, 5)),
        moves=r.choice((0, 0, 6)),
    )
    strategy = _strategy(r, cluster, moves=bool(faults.moves))
    if strategy.rollout_ranks in (0, cluster.ranks) and not elastic(strategy):
        faults = replace(faults, moves=0)
    scheduling: dict[str, Any] = {
        "max_attempts": r.choice((1, 2, 3)),
        "filter_zero_variance": r.random() < 0.3,
        "max_filtered_per_step": r.choice((1, 3)),
        "window": r.choice((None, None, r.randint(0, workload.groups_per_step))),
    }
    if strategy.mode == "async":
        scheduling["group_deadline"] = r.choice((1e9, 400.0, 400.0))
    steps = r.randint(3, 6)
    priority = {"priority": r.choice(PRIORITIES), "aging": r.choice((0.5, 20.0, 300.0))}
    strategy = strategy.model_copy(update=priority)
    return Case(
        seed=seed,
        workload=workload,
        cluster=cluster,
        strategy=strategy,
        steps=steps,
        faults=faults,
        scheduling=scheduling,
    )


def _workload(r: random.Random) -> Workload:
    quick = {"type": "log_normal", "median": r.choice((0.2, 2.0)), "shape": 1.0, "high": 60.0}
    hung = {"type": "constant", "value": 3000.0}
    slow = r.choice((0.0, 0.005))
    return Workload.model_validate(
        {
            "name": "small",
            "about": "",
            "system": r.choice((0, 40)),
            "task": {"type": "uniform", "start": 10, "stop": r.choice((20, 120))},
            "turns": {"type": "uniform", "start": 1, "stop": r.randint(2, 6)},
            "append": {"type": "uniform", "start": 0, "stop": r.choice((10, 60))},
            "output": {"type": "log_normal", "median": r.choice((5, 30, 80)), "shape": 0.8, "low": 1, "high": 200},
            "latency": {"type": "mixture", "weights": [1 - slow, slow], "parts": [quick, hung]},
            "reset": {"type": "uniform", "start": 0.0, "stop": 1.0},
            "grade": {"type": "constant", "value": r.choice((0.0, 1.0))},
            "context": r.randint(350, 900),
            "window": r.choice((None, None, 2)),
            "failure": r.choice((0.0, 0.05, 0.25)),
            "failure_seconds": {"type": "constant", "value": 5.0},
            "group_size": r.randint(2, 4),
            "groups_per_step": r.randint(2, 6),
        }
    )


def _cluster(r: random.Random, workload: Workload) -> Cluster:
    tight = workload.context + r.randint(1, 60)
    costs = ServiceCosts(
        prefill_base=0.05,
        prefill_token=0.001,
        prefill_attention=1e-6,
        decode_base=0.02,
        decode_sequence=0.002,
        decode_context=1e-5,
        reload_base=0.05,
        reload_token=r.choice((1e-4, 2e-3)),
        reference_token=0.001,
        forward_token=0.001,
        backward_token=0.002,
        optimizer=0.5,
        swap=r.choice((0.1, 2.0)),
        publish=r.choice((0.0, 1.0, 40.0)),
        role_switch=r.choice((0.5, 10.0)),
    )
    return Cluster(
        name="small",
        about="",
        ranks=r.randint(2, 5),
        kv_tokens=r.choice((tight, tight, 2 * tight, 10 * tight)),
        host_tokens=r.choice((0, tight, 20 * tight)),
        max_batch=r.choice((1, 3, 8)),
        environment_slots=r.choice((3, 64)),
        micro_batch_tokens=r.choice((256, 4096)),
        costs=costs,
    )


def _strategy(r: random.Random, cluster: Cluster, *, moves: bool) -> Strategy:
    mode = r.choice(("async", "async", "async", "sync"))
    rates = mode == "async" and r.random() < 0.25
    rollout = r.randint(1, cluster.ranks - 1)
    if mode == "sync" and r.random() < 0.5:
        rollout = cluster.ranks
    possible = [
        each for each in MODES if each != "split-1" or (cluster.ranks - rollout >= 2 and not rates and not moves)
    ]
    return Strategy.model_validate(
        {
            "mode": mode,
            "staleness": r.randint(0, 3),
            "rollout_ranks": rollout,
            "elasticity": "rates" if rates else "static",
            "concurrency_per_rank": r.choice((2, 6, 32)),
            "admission": r.choice(("fixed", "fixed", "law")),
            "kv": r.choice(("keep", "refresh", "recompute")),
            "kv_gap": r.choice((1, 1, 2)),
            "evicts": r.choice(("warm", "cold")),
            "batchwise": r.random() < 0.2,
            "turnwise": r.random() < 0.1,
            "retention": r.choice(RETENTION),
            "decode_steps": r.choice((1, 8, 16, 64, 64)),
            "reference": r.random() < 0.7,
            "pipelining": "full" if rollout == cluster.ranks else r.choice(possible),
        }
    )


class FaultyRun(Simulation):
    """The run of a case, with books beside every part."""

    def __init__(self, case: Case) -> None:
        super().__init__(
            case.workload,
            case.cluster,
            case.strategy,
            seed=case.seed,
            steps=case.steps,
            scheduling=case.scheduling,
        )
        self.books = Books(self._config, self._scripts, longest=_longest(case), now=lambda: LoopClock().now())
        self.ranks: list[RankBooks] = []
        self.aborted = False
        self.repeated = 0
        self._journal = self.books
        self._case = case
        self._random = random.Random(f"faults {case.seed}")

    def _controller(self, clock: Any, ledger: Any, executor: Any, dispatch: Dispatch, steps: Any) -> Controller:
        self._watch_turns(dispatch)
        controller = super()._controller(clock, ledger, executor, dispatch, steps)
        self._watch_decisions(controller)
        train = self.trainer.step

        def watched(*, step: int, groups: Any) -> Any:
            self.books.trains(step, groups)
            return train(step=step, groups=groups)

        self.trainer.step = watched  # type: ignore[method-assign]
        assert controller.episodes is not None
        deliver = controller.episodes._post
        controller.episodes._post = lambda event, trajectory: self._deliver(deliver, event, trajectory)
        return controller

    def _watch_turns(self, dispatch: Dispatch) -> None:
        inner = dispatch.sample
        dispatch.sample = lambda request: self.books.sample(request, inner)  # type: ignore
        for engine, rank in zip(self.engines, dispatch._ranks, strict=True):
            steering = rank._steering
            held = (lambda: False) if steering is None else (lambda steering=steering: steering.holds)
            self.ranks.append(RankBooks(engine, self.books, kv=self._strategy.kv, gap=self._strategy.kv_gap, held=held))

    def _watch_decisions(self, controller: Controller) -> None:
        scheduler = controller.scheduler
        decide = scheduler.on

        def on(event: Event) -> Any:
            commands = decide(event)
            self.books.decided(event, commands, scheduler.ends())
            for command in commands:
                if isinstance(command, StartMember) and self._random.random() < self._case.faults.foreign:
                    foreign = MemberFinished(
                        group=command.group, slot=command.slot, attempt=command.attempt, epoch=-1, reward=1.0
                    )
                    self._later(20.0, controller.post, foreign)
            return commands

        scheduler.on = on  # type: ignore[method-assign]

    def _set_up_policies(self, controller: Controller, dispatch: Dispatch, clock: LoopClock) -> None:
        super()._set_up_policies(controller, dispatch, clock)
        faults, most = self._case.faults, len(self.engines)
        limits = [ConcurrencySet(self._random.randint(1, 40)) for _ in range(faults.limits)]
        moves = [RolesSet(self._random.randint(1, most)) for _ in range(faults.moves)]
        events: list[Event] = [*limits, *moves]
        for event in events:
            self._later(60.0, controller.post, event)

    def _deliver(self, post: Callable[..., None], event: MemberFinished, trajectory: Trajectory | None) -> None:
        post(event, trajectory)
        if self._random.random() < self._case.faults.twice:
            self.repeated += 1
            post(event, trajectory)
        if self._random.random() < self._case.faults.late:
            self.repeated += 1
            self._later(20.0, post, event, trajectory)

    def _later(self, mean: float, call: Callable[..., None], *arguments: object) -> None:
        asyncio.get_running_loop().call_later(self._random.expovariate(1 / mean), call, *arguments)


def _longest(case: Case) -> float:
    """Seconds in which all turns of all live episodes could be served several times over, one after the other."""
    work, costs = case.workload, case.cluster.costs
    live = (case.strategy.staleness + 1) * work.groups_per_step * work.group_size
    turn = costs.prefill(work.context, 0) + costs.reload(work.context) + 200 * costs.decode_step(1, work.context)
    return 4 * (live * 6 * turn + case.steps * costs.publish + 10 * costs.role_switch)


def play(case: Case) -> FaultyRun:
    """The run of `case` to its end, with all checks. ViolationError, and nothing else, if one fails."""
    run = FaultyRun(case)
    main: Callable[[], Awaitable[Any]] = run.main
    try:
        run_virtual(main, kill_after=CALLBACKS)  # type: ignore[arg-type]
    except StuckError as error:
        raise ViolationError(f"I8: {error}") from error
    except Killed as error:
        raise ViolationError(f"I8: not over after {CALLBACKS} callbacks") from error
    except SpringtideError as error:
        if "groups all failed" not in str(error):
            raise
        run.aborted = True
        return run
    run.books.finished()
    return run
