"""Modelled runs in which everything goes wrong that may: a random case, its faults, and the run with its books."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from simulation.invariants import FOREVER, Books, ViolationError, check
from simulation.rank_books import RankBooks
from springtide.core.errors import SpringtideError
from springtide.core.trajectory import Trajectory
from springtide.core.version import PolicyVersion
from springtide.ports.engine import Finished
from springtide.runtime.clock import LoopClock
from springtide.runtime.controller import Controller
from springtide.runtime.dispatch import Dispatch, Pending
from springtide.runtime.rank import Rank
from springtide.scheduling.commands import StartMember
from springtide.scheduling.costs import ServiceCosts
from springtide.scheduling.events import ConcurrencySet, Event, MemberFinished, RankDied, RankJoined, RolesSet
from springtide.scheduling.scheduler import Scheduler
from springtide.simulation.cluster import Cluster
from springtide.simulation.engine import ModelledEngine
from springtide.simulation.failure import Failure
from springtide.simulation.simulate import Simulation, elastic
from springtide.simulation.strategy import Strategy
from springtide.simulation.turn import ModelledRequest, ModelledSample
from springtide.simulation.virtual_loop import Killed, StuckError, run_virtual
from springtide.simulation.workload import Workload

RETENTION = ["lru", "lru-ordered", "cap-0.5", "ttl-4", "decay-4", "min-waste", "residency-0.8", "oracle", "break-even"]
MODES = ("full", "swap", "swap-2", "split-1", "ahead", "ahead-1", "adapter", "adaptive")
PRIORITIES = ("oldest", "value", "longest", "switch")
CALLBACKS = 400_000
"""Of the event loop; the runs here take a tenth of it."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Shares of messages that come twice, late again, or from an earlier process; numbers of settings from outside.

    `deaths` of ranks at any time, and `hangs`: the share of visits that never come back. `echoes`, `delays`, `losses`:
    shares of answers of ranks that come again, late, and never; what a dead rank was about to say comes late, too.
    `bad_proofs`: of loads after which a rank holds something else.
    """

    twice: float = 0.0
    late: float = 0.0
    foreign: float = 0.0
    limits: int = 0
    moves: int = 0
    deaths: int = 0
    hangs: float = 0.0
    echoes: float = 0.0
    delays: float = 0.0
    losses: float = 0.0
    bad_proofs: float = 0.0

    @property
    def needs_deadline(self) -> bool:
        return self.hangs > 0 or self.losses > 0

    @property
    def mortal(self) -> bool:
        """Ranks may die."""
        return self.deaths > 0 or self.needs_deadline


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
    if r.random() < 0.4:
        faults = _of_ranks(r, faults)
    strategy = _strategy(r, cluster, moves=bool(faults.moves or faults.deaths or faults.needs_deadline))
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
    movable = elastic(strategy) or faults.mortal or not faults.moves
    if strategy.mode == "async" and movable and r.random() < 0.2:
        strategy = strategy.model_copy(update={"rollout_ranks": cluster.ranks, "pipelining": "full"})
    return Case(
        seed=seed,
        workload=workload,
        cluster=cluster,
        strategy=strategy,
        steps=steps,
        faults=faults,
        scheduling=scheduling,
    )


def _of_ranks(r: random.Random, faults: Faults) -> Faults:
    """With ranks that die, and what they say getting lost."""
    return replace(
        faults,
        deaths=r.choice((0, 2, 8, 20)),
        hangs=r.choice((0.0, 0.0, 1e-3)),
        echoes=r.choice((0.0, 0.1)),
        delays=r.choice((0.0, 0.02)),
        losses=r.choice((0.0, 0.0, 2e-3)),
        bad_proofs=r.choice((0.0, 0.0, 0.05)),
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
            failures=[Failure(0, 10 * FOREVER)] if case.faults.mortal else [],
            deadline=_longest(case) if case.faults.needs_deadline else None,
        )
        longest = 8 * _longest(case) if case.faults.mortal else _longest(case)
        self.books = Books(self._config, self._scripts, longest=longest, now=lambda: LoopClock().now())
        self.ranks: list[RankBooks] = []
        """Of all lives of all ranks."""
        self._living: dict[int, RankBooks] = {}
        self._at_work: dict[str, str] = {}
        self._voices: dict[int, Callable[[list[Finished]], None]] = {}
        self.deaths = self.again = self.dropped = 0
        self.scheduler: Scheduler | None = None
        self.aborted = ""
        """Why it was given up."""
        self.repeated = 0
        self._journal = self.books
        self._case = case
        self._random = random.Random(f"faults {case.seed}")

    def _controller(self, clock: Any, ledger: Any, executor: Any, dispatch: Dispatch, steps: Any) -> Controller:
        self._watch_turns(dispatch)
        self._watch_lanes(executor)
        controller = super()._controller(clock, ledger, executor, dispatch, steps)
        self._watch_decisions(controller)
        self._fail = controller.fail
        train = self.trainer.step

        def watched(*, step: int, groups: Any) -> Any:
            self.again += step == len(self.books.trained)
            self.books.trains(step, groups)
            self._look_at_the_trainer(controller)
            return train(step=step, groups=groups)

        self.trainer.step = watched  # type: ignore[method-assign]
        resize = self._stack.resize

        def resized(training: int, together: bool, lost: bool) -> None:
            assert controller.mover is not None
            if not controller.mover.overlaps:
                self._look_at_the_trainer(controller, ranks=training)
            resize(training, together, lost)

        self._stack.resize = resized  # type: ignore[method-assign]
        assert controller.episodes is not None
        deliver = controller.episodes._post
        controller.episodes._post = lambda event, trajectory: self._deliver(deliver, event, trajectory)
        return controller

    def _watch_lanes(self, executor: Any) -> None:
        """What each lane is at, by name."""
        cost, spend = executor._cost, executor._spend

        def asked(lane: str, name: str) -> Any:
            self._at_work[lane] = name
            return cost(lane, name)

        async def spent(lane: str, seconds: float) -> Any:
            try:
                return await spend(lane, seconds)
            finally:
                del self._at_work[lane]

        executor._cost, executor._spend = asked, spent

    def _watch_turns(self, dispatch: Dispatch) -> None:
        inner, lose = dispatch.sample, dispatch.lose
        dispatch.sample = lambda request: self.books.sample(request, inner)  # type: ignore
        crew = dispatch._crew
        make = crew._make
        self._sampler = dispatch

        def made(number: int, engine: Any, epoch: int) -> Rank:
            rank = make(number, engine, epoch)
            self._watch_rank(number, epoch, engine, rank)
            return rank

        def lost(number: int) -> None:
            self._living[number].dead = True
            self._speak_of_the_past(number, [each for each in dispatch._pending.values() if each.rank == number])
            lose(number)
            self.deaths += 1
            left = [str(who) for who, pending in dispatch._pending.items() if pending.rank == number]
            check(not left, "I8", f"turns of {left} wait for rank {number}, which is dead")

        crew._make, dispatch.lose = made, lost  # type: ignore[method-assign]
        for number, rank in enumerate(dispatch._ranks):
            self._watch_rank(number, 0, self.engines[number], rank)

    def _watch_rank(self, number: int, epoch: int, engine: Any, rank: Rank) -> None:
        """One life of a rank."""
        steering, faults, r = rank._steering, self._case.faults, self._random
        held = (lambda: False) if steering is None else (lambda: steering.holds)

        def after(engine: ModelledEngine) -> None:
            if faults.hangs and r.random() < faults.hangs:
                engine.meter.spent = {"decode": 1e9}

        def proves(proof: PolicyVersion) -> PolicyVersion:
            bad = faults.bad_proofs and r.random() < faults.bad_proofs
            return PolicyVersion(proof.number, "something else") if bad else proof

        books = RankBooks(
            engine,
            self.books,
            kv=self._strategy.kv,
            gap=self._strategy.kv_gap,
            held=held,
            after=after,
            proves=proves,
        )
        self.ranks.append(books)
        self._living[number] = books
        speaks = partial(self._heard, number, epoch, rank._deliver)
        self._voices[number] = speaks
        rank._deliver = partial(self._answer, speaks)

    def _answer(self, speaks: Callable[[list[Finished]], None], finished: list[Finished]) -> None:
        """What a rank says may get lost, come late, and come again."""
        faults, r = self._case.faults, self._random
        if not faults.echoes and not faults.losses and not faults.delays:
            speaks(finished)
            return
        lost = [turn for turn in finished if r.random() < faults.losses]
        late = [turn for turn in finished if r.random() < faults.delays and turn not in lost]
        self.dropped += len(lost)
        speaks([turn for turn in finished if turn not in lost and turn not in late])
        if late:
            self._later(5.0, speaks, late)
        if r.random() < faults.echoes:
            self.repeated += 1
            speaks([turn for turn in finished if turn not in late])
        if r.random() < faults.echoes:
            self.repeated += 1
            self._later(40.0, speaks, finished)

    def _speak_of_the_past(self, number: int, unheard: list[Pending]) -> None:
        """A rank that is given up may have been about to answer."""
        if self._random.random() < 0.5:
            return
        for pending in unheard:
            request = pending.request
            assert isinstance(request, ModelledRequest)
            sampled = ModelledSample(counts=((self._living[number]._loaded, request.output),))
            turn = Finished(member=request.member, turn=request.turn, sampled=sampled)
            self._later(5.0, self._voices[number], [turn])

    def _heard(self, number: int, epoch: int, deliver: Callable[..., None], finished: list[Finished]) -> None:
        """Only what is waited for, from those who live, is an answer."""
        pending = dict(self._sampler._pending)
        deliver(finished)
        for turn in finished:
            before = pending.get(turn.member)
            if before is not None and turn.member not in self._sampler._pending:
                check(before.request.turn == turn.turn, "I4", f"{turn.member} is answered with another turn")
                check(
                    self._sampler._crew.membership.hears(number, epoch), "I1", f"{turn.member} is answered by the dead"
                )

    def _look_at_the_trainer(self, controller: Controller, *, ranks: int | None = None) -> None:
        """When a step begins, or so many ranks are about to train."""
        assert controller.mover is not None
        training = controller.mover._training
        ranks = self.trainer._ranks if ranks is None else ranks  # type: ignore[attr-defined]
        check(len(training) == ranks, "I6", f"{ranks} ranks train, and {list(training)} are there for it")
        dead = [rank for rank in training if not controller.mover._wanted.lives(rank)]
        check(not dead, "I6", f"{dead} train, and are dead")
        if self._membership.together and not controller.turns:
            return
        crew = self._sampler._ranks
        busy = [rank for rank in training if rank in self._living and self._living[rank].busy]
        both = [rank for rank in busy if not crew[rank]._paused]
        check(not both, "I6", f"{both} train while turns run on them")
        lanes = {rank: crew[rank].lane for rank in training if rank in self._living}
        at_work = {rank: self._at_work[lane] for rank, lane in lanes.items() if lane in self._at_work}
        at_work = {rank: name for rank, name in at_work.items() if name in ("generate", "refresh")}
        check(not at_work, "I6", f"{at_work} are at work while their ranks train")

    def _watch_decisions(self, controller: Controller) -> None:
        self.scheduler = scheduler = controller.scheduler
        decide, hold = scheduler.on, controller.steps.hold

        def held() -> None:
            step = controller.steps._step
            self.books.broken = self.books.broken or (step is not None and not step.done())
            hold()

        controller.steps.hold = held  # type: ignore[method-assign]

        def on(event: Event) -> Any:
            commands = decide(event)
            if isinstance(event, RankDied) and self._random.random() < 0.9:
                self._later(30.0, controller.post, RankJoined(event.rank))
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
        moves = [self._roles(most) for _ in range(faults.moves)]
        events: list[Event] = [*limits, *moves]
        for event in events:
            self._later(60.0, controller.post, event)
        for _ in range(faults.deaths):
            self._later(100.0, self._kill, controller)

    def _roles(self, most: int) -> RolesSet:
        """Some ranks of those that can roll out; or all in turns, where all can."""
        ranks = self._random.randint(1, most)
        return RolesSet(ranks, together=ranks == self._case.cluster.ranks and self._case.strategy.mode == "async")

    def _kill(self, controller: Controller) -> None:
        """Any rank; hardly ever one of the last two, of which each is needed."""
        members = controller.scheduler.membership
        rank = self._random.randrange(len(members.since))
        if members.alive > 2 or self._random.random() < 0.1:
            controller.post(RankDied(rank, members.since[rank]))

    def _deliver(self, post: Callable[..., None], event: MemberFinished, trajectory: Trajectory | None) -> None:
        post(event, trajectory)
        if self._random.random() < self._case.faults.twice:
            self.repeated += 1
            post(event, trajectory)
        if self._random.random() < self._case.faults.late:
            self.repeated += 1
            self._later(20.0, post, event, trajectory)

    def _later(self, mean: float, call: Callable[..., None], *arguments: object) -> None:
        """A check that fails then ends the run."""

        def due() -> None:
            try:
                call(*arguments)
            except ViolationError as error:
                self._fail(error)

        asyncio.get_running_loop().call_later(self._random.expovariate(1 / mean), due)


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
        expected = ["groups all failed"]
        expected += ["ranks are left, and none of them can"] if case.faults.mortal else []
        expected += ["does not hold version"] if case.faults.bad_proofs else []
        if not any(text in str(error) for text in expected):
            raise
        run.aborted = str(error)
        assert run.scheduler is not None
        spare = run.scheduler.membership.alive - (0 if run.scheduler.membership.together else 1)
        check(
            spare <= 0 or "ranks are left" not in run.aborted, "I8", f"the run is given up with {spare} ranks to spare"
        )
        return run
    run.books.finished()
    return run
