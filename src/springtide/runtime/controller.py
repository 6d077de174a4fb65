"""The one inbox and the one writer: events in, decisions journalled, commands out.

    inbox ─► scheduler.on ─► journal (events, commands, trajectories, ends: one transaction) ─► execute

Nothing is executed before it is durable, and the in-memory state that runs ahead of the journal is visible to nobody:
a kill anywhere leaves a journal from which `recovery` rebuilds the same scheduler.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from springtide.core.errors import SpringtideError, StorageFullError
from springtide.core.group import Group
from springtide.core.member import Member, Purpose
from springtide.core.outcome import Valid
from springtide.core.trajectory import Trajectory
from springtide.ports.clock import Clock
from springtide.ports.executor import Executor
from springtide.ports.journal import EndRecord, Entry, Journal
from springtide.ports.trainer import Trainer
from springtide.runtime.admission import Admission
from springtide.runtime.checkpoints import Checkpoints
from springtide.runtime.dispatch import Dispatch
from springtide.runtime.episodes import Episodes
from springtide.runtime.evaluator import Evaluator
from springtide.runtime.mover import SWITCH, Mover
from springtide.runtime.observer import Observers
from springtide.runtime.publication import Publication
from springtide.runtime.roles import Roles
from springtide.runtime.stash import Stash
from springtide.runtime.train_lane import TrainLane
from springtide.scheduling.codec import COMMAND, EVENT, encode
from springtide.scheduling.commands import (
    Abort,
    CancelGroup,
    Command,
    Evaluate,
    Finish,
    IssueGroup,
    MoveRanks,
    Prepare,
    Publish,
    SaveCheckpoint,
    ScoreGroup,
    SetDeadline,
    StartMember,
    Train,
)
from springtide.scheduling.events import (
    CheckpointFailed,
    CheckpointSaved,
    DeadlinePassed,
    Event,
    GroupScored,
    MemberFinished,
    StepFinished,
)
from springtide.scheduling.scheduler import Scheduler
from springtide.telemetry.ledger import Ledger
from springtide.telemetry.status import Wait

Item = tuple[Event, Sequence[Trajectory]]


class Controller:
    """Drives a run from the events that `recovery` starts it with to `Finish`."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        journal: Journal,
        executor: Executor,
        clock: Clock,
        ledger: Ledger,
        trainer: Trainer,
        dispatch: Dispatch,
        publication: Publication,
        evaluator: Evaluator,
        checkpoints: Checkpoints,
        stash: Stash,
        observers: Observers,
    ) -> None:
        self.scheduler = scheduler
        self._journal = journal
        self._executor = executor
        self._clock = clock
        self._trainer_lane = ledger.lane("trainer")
        self._trainer = trainer
        self._dispatch = dispatch
        self._publication = publication
        self._evaluator = evaluator
        self._checkpoints = checkpoints
        self._stash = stash
        self._observers = observers
        self.steps = TrainLane(executor, self._clear_devices)
        self._published = asyncio.Event()
        self._published.set()
        self.mover: Mover | None = None
        self.turns = False
        self.roles: Roles | None = None
        self.admission: Admission | None = None
        self._inbox: asyncio.Queue[Item] = asyncio.Queue()
        self._failure: asyncio.Future[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._appending: float | None = None
        self._done = False
        self.episodes: Episodes | None = None

    def post(self, event: Event, trajectories: Sequence[Trajectory] = ()) -> None:
        self._inbox.put_nowait((event, trajectories))

    def post_member(self, event: MemberFinished, trajectory: Trajectory | None) -> None:
        self.post(event, () if trajectory is None else (trajectory,))

    def fail(self, error: BaseException) -> None:
        """Something broke that is nobody's episode: the run stops with this error."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def waits(self) -> list[Wait]:
        """All waits of the run, oldest first."""
        now = self._clock.now()
        waits = self._dispatch.waits() + (self.episodes.waits() if self.episodes else [])
        waits += [Wait(task.get_name(), "controller", now - since) for task, since in self._since.items()]
        if self._appending is not None:
            waits.append(Wait("append", "journal", now - self._appending))
        return sorted(waits, key=lambda wait: -wait.age)

    async def run(self, first: Sequence[Event]) -> None:
        """Until the scheduler finishes. SpringtideError when it aborts; any other error of any part is raised here."""
        assert self.episodes is not None
        self._failure = asyncio.get_running_loop().create_future()
        self._since: dict[asyncio.Task[None], float] = {}
        self.spawn("dispatch", self._dispatch.run, shown=False)
        for event in first:
            self.post(event)
        if self.admission is not None:
            self.admission.start()
        try:
            while not self._done:
                await self._turn()
        finally:
            await self._close()

    async def _turn(self) -> None:
        """One round: everything that is in the inbox, one transaction, its commands."""
        items = await self._receive()
        commands: list[Command] = []
        entries: list[Entry] = []
        ends: list[EndRecord] = []
        written: list[Trajectory] = []
        told: list[tuple[Event, list[Command]]] = []
        now = self._clock.now()
        for event, trajectories in items:
            if isinstance(event, MemberFinished) and not self.scheduler.expects(event):
                continue  # Told twice, or too late: neither journal nor stash may take it for what was accepted.
            if isinstance(event, MemberFinished | GroupScored):
                for trajectory in trajectories:
                    self._stash.put(trajectory)
            decided = self.scheduler.on(event)
            entries.append(Entry(EVENT, encode(event), now))
            entries += [Entry(COMMAND, encode(command), now) for command in decided]
            ends += self.scheduler.ends()
            commands += decided
            told.append((event, decided))
            written += trajectories
        await self._append(partial(self._journal.append, entries=entries, trajectories=written, ends=ends))
        for command in commands:
            self._execute(command)
        for event, _ in told:
            if isinstance(event, MemberFinished):
                self._dispatch.close(Member(Purpose.TRAIN, event.group, event.slot, event.attempt))
            elif isinstance(event, GroupScored):
                self._dispatch.close(_bench(event.group))
        for event, decided in told:
            self._observers.decided(event, decided)
            if self.roles is not None:
                self.roles.decided(event)

    async def _append(self, append: Callable[[], None]) -> None:
        """Everything waits for this: nothing is executed before it is durable."""
        self._appending = self._clock.now()
        self._declare_waits(blamed="journal")
        await self._executor.run("journal", append, name="append")
        self._declare_waits()
        self._appending = None

    async def _receive(self) -> list[Item]:
        """At least one item. Raises what `fail` was told."""
        assert self._failure is not None
        if self._inbox.empty() or self._failure.done():
            getter = asyncio.ensure_future(self._inbox.get())
            waiting: list[asyncio.Future[Any]] = [getter, self._failure]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                getter.cancel()
                self._failure.result()
            items = [getter.result()]
        else:
            items = []
        while not self._inbox.empty():
            items.append(self._inbox.get_nowait())
        return items

    def _declare_waits(self, *, blamed: str = "") -> None:
        """Tell the ledger what idle lanes wait for: `blamed`, if that holds up every decision."""
        state = self.scheduler
        if state.evaluating:
            trainer = engine = "evaluation"
        elif state.publishing:
            trainer = engine = "publication"
        else:
            trainer = SWITCH if self.steps.held else "rollout"
            engine = "training" if state.training else "admission"
        self._trainer_lane.wait_for(blamed or trainer)
        self._dispatch.wait_for(engine, blamed=blamed)

    # -- commands ----------------------------------------------------------------------------------------------------

    def _execute(self, command: Command) -> None:
        assert self.episodes is not None
        match command:
            case IssueGroup():
                self._stash.issue(command.group, base_version=command.base_version, size=command.size)
            case StartMember():
                self.episodes.start(command)
            case ScoreGroup(group, epoch):
                self._dispatch.open(_bench(group))
                score = partial(self._score, self._stash.peek(group), epoch)
                self.spawn(f"score group {group}", score)
            case CancelGroup(group):
                self.episodes.cancel(group)
                self._stash.drop(group)
            case SetDeadline():
                self.spawn(f"deadline of group {command.group}", partial(self._deadline, command), shown=False)
            case Prepare():
                now, idle = self._clock.now(), not self.scheduler.training
                prepare = partial(self._prepare, command, self._stash.peek(command.group), now, idle)
                self.spawn(f"prepare group {command.group}", prepare, shown=False)
            case MoveRanks(membership):
                assert self.mover is not None, "nobody moves ranks where there is no mover"
                self.mover.follow(membership)
            case Train():
                self.spawn(f"train step {command.step}", partial(self._train, command))
            case Publish(version):
                self._published.clear()
                self.spawn(f"publish version {version}", partial(self._publish, version))
            case SaveCheckpoint():
                self.spawn(f"save checkpoint {command.step}", partial(self._save, command))
            case Evaluate():
                self.spawn(f"evaluate version {command.version}", partial(self._evaluate, command))
            case Finish():
                self._done = True
            case Abort(reason):
                raise SpringtideError(reason)

    def spawn(self, name: str, work: Callable[[], Awaitable[None]], *, shown: bool = True) -> None:
        """Run `work` beside the controller. `shown`: it is something the run waits for."""

        async def guarded() -> None:
            try:
                await work()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.fail(error)

        task = asyncio.get_running_loop().create_task(guarded(), name=name)
        self._background.add(task)
        if shown:
            self._since[task] = self._clock.now()
        task.add_done_callback(self._background.discard)
        task.add_done_callback(lambda done: self._since.pop(done, None))

    async def _deadline(self, command: SetDeadline) -> None:
        await self._clock.sleep(command.seconds)
        self.post(DeadlinePassed(command.group, command.epoch))

    async def _score(self, group: Group, epoch: int) -> None:
        assert self.episodes is not None
        scored = await self.episodes.score(group)
        rewards = tuple(member.reward for member in scored)
        reasons = tuple("" if isinstance(member.outcome, Valid) else member.outcome.detail for member in scored)
        self.post(GroupScored(group=group.id, epoch=epoch, rewards=rewards, reasons=reasons), scored)

    async def _prepare(self, command: Prepare, group: Group, ready: float, idle: bool) -> None:
        prepare = partial(self._trainer.prepare, step=command.step, group=group, ready=ready, idle=idle)
        await self._executor.run("trainer", prepare, name="prepare")

    async def _train(self, command: Train) -> None:
        groups = tuple(self._stash.take(group) for group in command.groups)
        step = partial(self._trainer.step, step=command.step, groups=groups)
        report = await self.steps.run(step)
        self._observers.trained(report, groups)
        self.post(
            StepFinished(
                step=report.step,
                digest=report.version.digest,
                trained_tokens=report.trained_tokens,
                zero_advantage_tokens=report.zero_advantage_tokens,
            )
        )

    async def _clear_devices(self) -> None:
        """Ranks that roll out and train take turns."""
        if self.turns and self.mover is not None and self.mover.overlaps:
            await self._published.wait()
            await self._dispatch.pause()

    async def _publish(self, version: int) -> None:
        published = await self._publication.publish(version)
        self._published.set()
        if not self.scheduler.training:
            self._dispatch.resume()
        self.post(published)

    async def _save(self, command: SaveCheckpoint) -> None:
        save: Callable[[], None] = partial(self._checkpoints.save, command.step, self._trainer.save, command.boundary)
        try:
            await self._executor.run("trainer", save, name="checkpoint")
        except StorageFullError as error:
            self.post(CheckpointFailed(command.step, str(error)))
        else:
            self.post(CheckpointSaved(command.step))

    async def _evaluate(self, command: Evaluate) -> None:
        trajectories = await self._evaluator.evaluate(command.tasks)
        self._observers.evaluated(command.version, trajectories)
        self.post(self._evaluator.summary(command.version, trajectories), trajectories)

    async def _close(self) -> None:
        assert self.episodes is not None
        await self.episodes.close()
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _bench(group: int) -> Member:
    """Stands for a group that is being graded: in lockstep no batch forms before its verdict, so that what the verdict
    decides does not depend on how long it took."""
    return Member(Purpose.TRAIN, group, -1)
