"""From a journal and checkpoints to a running state: the same path for a first start, a resume and a recovery.

Steps trained since the checkpoint are trained again from the journal, in the same order, on the same trajectories;
nothing that was trained is sampled again. That the scheduler decides in replay what it decided then is checked, event
by event: with another recipe it would go on from a state that never was.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

from springtide.core.errors import RunDamagedError
from springtide.core.group import Group
from springtide.ports.executor import Executor
from springtide.ports.journal import Entry, Journal
from springtide.ports.trainer import StepReport, Trainer
from springtide.runtime.checkpoints import Checkpoints
from springtide.runtime.invalid_rate import InvalidRates
from springtide.runtime.observer import Observers
from springtide.runtime.stash import Stash
from springtide.scheduling.codec import EVENT, decode_command, decode_event
from springtide.scheduling.commands import Abort, Command, IssueGroup, Train
from springtide.scheduling.events import Boundary, EvaluationFinished, Event, ProcessStarted, RunStarted, StepFinished
from springtide.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)

Redone = tuple[StepReport, tuple[Group, ...]]
"""A step that was trained again, and what it was trained on."""


class Recovery:
    """Brings scheduler, trainer and stash to where the journal ends, and `invalid_rates` with them."""

    def __init__(
        self,
        *,
        journal: Journal,
        checkpoints: Checkpoints,
        trainer: Trainer,
        executor: Executor,
        scheduler: Scheduler,
        stash: Stash,
        observers: Observers,
        invalid_rates: InvalidRates,
        progress: Callable[[int, int], None] = lambda step, last: None,
    ) -> None:
        self._journal = journal
        self._checkpoints = checkpoints
        self._trainer = trainer
        self._executor = executor
        self._scheduler = scheduler
        self._stash = stash
        self._observers = observers
        self._invalid_rates = invalid_rates
        self._progress = progress
        self._issued: dict[int, IssueGroup] = {}
        self._trains: dict[int, Train] = {}
        self._digests: dict[int, str] = {}
        self.evaluations: dict[int, EvaluationFinished] = {}
        """What earlier processes found, by version."""
        self.seconds = 0.0
        """For how long earlier processes drove the run."""

    async def recover(self) -> list[Event]:
        """The events that the controller has to start with.

        RunDamagedError when no checkpoint is sound, the journal does not follow from the recipe or lacks something, or
        trained again, a step gives other weights than it did.
        """
        entries: list[Entry] = await self._executor.run("journal", lambda: list(self._journal.entries()), name="read")
        epoch = self._replay(entries)
        newest = max(self._trains, default=self._scheduler.trained) if entries else sys.maxsize
        restore = partial(self._checkpoints.restore, self._trainer.load, newest=newest)
        boundary = await self._executor.run("trainer", restore, name="load_checkpoint")
        if not entries:
            return [RunStarted(boundary), ProcessStarted(0)]
        self._name_lost_evaluation()
        redone = await self._train_again(boundary)
        await self._restash()
        return [ProcessStarted(epoch + 1, self._finished(redone) if self._scheduler.training else None)]

    def _replay(self, entries: list[Entry]) -> int:
        epoch, since = -1, entries[0].time if entries else 0.0
        for number, entry, journalled in _moves(entries):
            event = decode_event(entry.body)
            decided = self._decide_again(event)
            if decided is None or not _same(decided, journalled):
                raise _diverged(number)
            self._invalid_rates.on(event, decided)
            self._remember(event, decided)
            if isinstance(event, ProcessStarted):
                epoch, since = event.epoch, entry.time
            self.seconds += max(entry.time - since, 0.0)
            since = entry.time
        return epoch

    def _decide_again(self, event: Event) -> list[Command] | None:
        """None where the event cannot be: it speaks of a step or a slot that this scheduler does not have."""
        try:
            return self._scheduler.on(event)
        except (AssertionError, LookupError):
            return None

    def _remember(self, event: Event, commands: Iterable[Command]) -> None:
        """What training again needs."""
        match event:
            case ProcessStarted(open_step=StepFinished() as finished) | (StepFinished() as finished):
                self._digests[finished.step] = finished.digest
            case EvaluationFinished():
                self.evaluations[event.version] = event
        for command in commands:
            if isinstance(command, IssueGroup):
                self._issued[command.group] = command
            elif isinstance(command, Train):
                self._trains[command.step] = command

    def _name_lost_evaluation(self) -> None:
        """In async, training may have gone on while a version was evaluated: nothing serves that version again."""
        scheduler = self._scheduler
        if scheduler.evaluating and (scheduler.training or scheduler.published < scheduler.trained):
            log.warning(
                "The evaluation of version %d was interrupted and is left out of the curve: the weights have changed "
                "since.",
                scheduler.published,
            )

    async def _train_again(self, boundary: Boundary) -> Redone | None:
        redone = None
        last = max(self._trains, default=0)
        for step in range(boundary.step + 1, last + 1):
            self._progress(step, last)
            if step not in self._trains:
                raise _lacks(f"step {step}, which follows the newest sound checkpoint")
            command = self._trains[step]
            await self._load_groups(command.groups)
            groups = tuple(self._stash.take(group) for group in command.groups)
            report = await self._executor.run(
                "trainer", partial(self._trainer.step, step=step, groups=groups), name="train_again"
            )
            self._check(step, report.version.digest)
            redone = report, groups
        return redone

    def _finished(self, redone: Redone | None) -> StepFinished:
        """The step that was open, trained to its end: it is told here, as nobody else saw it finish."""
        assert redone is not None, "an open step is never older than the checkpoint"
        report, groups = redone
        self._observers.recovered(report, groups)
        return StepFinished(
            step=report.step,
            digest=report.version.digest,
            trained_tokens=report.trained_tokens,
            zero_advantage_tokens=report.zero_advantage_tokens,
        )

    def _check(self, step: int, digest: str) -> None:
        journalled = self._digests.get(step)
        if journalled is None or journalled == digest:
            return
        message = (
            f"Step {step}, trained again from the journal, gives other weights "
            f"({digest[:12]}) than the journal records ({journalled[:12]})"
        )
        if self._scheduler.sync and self._trainer.exact:
            raise RunDamagedError(
                f"{message}: resume on the machine and thread count that the run started with, or branch with --from."
            )
        log.warning("%s; the run goes on from the new ones.", message)

    async def _load_groups(self, groups: tuple[int, ...]) -> None:
        for group in groups:
            issued = self._issued[group]
            self._stash.issue(group, base_version=issued.base_version, size=issued.size)
            for slot in range(issued.size):
                await self._load_slot(group, slot)

    async def _load_slot(self, group: int, slot: int) -> None:
        read = partial(self._journal.trajectory, group, slot)
        try:
            self._stash.put(await self._executor.run("journal", read, name="read"))
        except KeyError:
            raise _lacks(f"the episode {group}.{slot}, which was trained on or waits for it") from None

    async def _restash(self) -> None:
        """Live groups of an async run keep their finished members; a sync run starts its open step again."""
        if self._scheduler.sync:
            return
        for group in self._scheduler.groups.values():
            self._stash.issue(group.id, base_version=group.base_version, size=len(group.slots))
            for index, slot in enumerate(group.slots):
                if slot.done:
                    await self._load_slot(group.id, index)


def _moves(entries: Sequence[Entry]) -> Iterator[tuple[int, Entry, list[Command]]]:
    """Each event with its number among the entries, and the commands that were journalled behind it."""
    starts = [number for number, entry in enumerate(entries) if entry.kind == EVENT]
    if entries and starts[:1] != [0]:
        raise _diverged(0)
    for start, end in pairwise([*starts, len(entries)]):
        yield start, entries[start], [decode_command(entry.body) for entry in entries[start + 1 : end]]


def _same(decided: Sequence[Command], journalled: Sequence[Command]) -> bool:
    """The words of an `Abort` are no decision."""
    return len(decided) == len(journalled) and all(
        one == other or (isinstance(one, Abort) and isinstance(other, Abort))
        for one, other in zip(decided, journalled, strict=True)
    )


def _diverged(number: int) -> RunDamagedError:
    return RunDamagedError(
        f"From its entry {number + 1} on, the journal records other decisions than this recipe leads to: the recipe or "
        "the version of Springtide has changed since the run began, or the journal is damaged; restore it, or branch "
        "with --from STEP."
    )


def _lacks(what: str) -> RunDamagedError:
    return RunDamagedError(
        f"The journal lacks {what}; restore it from a copy, or branch from a later checkpoint with --from STEP."
    )
