"""From a journal and checkpoints to a running state: the same path for a first start, a resume and a recovery.

Steps trained since the checkpoint are trained again from the journal, in the same order, on the same trajectories;
nothing that was trained is sampled again.
"""

import logging
import sys
from collections.abc import Callable
from functools import partial

from springtide.core.errors import RunDamagedError
from springtide.ports.executor import Executor
from springtide.ports.journal import Entry, Journal
from springtide.ports.trainer import StepReport, Trainer
from springtide.runtime.checkpoints import Checkpoints
from springtide.runtime.stash import Stash
from springtide.scheduling.codec import EVENT, decode_command, decode_event
from springtide.scheduling.commands import IssueGroup, Train
from springtide.scheduling.events import Boundary, EvaluationFinished, Event, ProcessStarted, RunStarted, StepFinished
from springtide.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)


class Recovery:
    """Brings scheduler, trainer and stash to where the journal ends."""

    def __init__(
        self,
        *,
        journal: Journal,
        checkpoints: Checkpoints,
        trainer: Trainer,
        executor: Executor,
        scheduler: Scheduler,
        stash: Stash,
        progress: Callable[[int, int], None] = lambda step, last: None,
    ) -> None:
        self._journal = journal
        self._checkpoints = checkpoints
        self._trainer = trainer
        self._executor = executor
        self._scheduler = scheduler
        self._stash = stash
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

        RunDamagedError when no checkpoint is sound, or trained again, a step gives other weights than it did.
        """
        entries: list[Entry] = await self._executor.run("journal", lambda: list(self._journal.entries()), name="read")
        epoch = self._replay(entries)
        newest = max(self._trains, default=self._scheduler.trained) if entries else sys.maxsize
        restore = partial(self._checkpoints.restore, self._trainer.load, newest=newest)
        boundary = await self._executor.run("trainer", restore, name="load_checkpoint")
        if not entries:
            return [RunStarted(boundary), ProcessStarted(0)]
        report = await self._train_again(boundary)
        await self._restash()
        return [ProcessStarted(epoch + 1, _finished(report) if self._scheduler.training else None)]

    def _replay(self, entries: list[Entry]) -> int:
        epoch, since = -1, entries[0].time if entries else 0.0
        for entry in entries:
            if entry.kind == EVENT:
                event = decode_event(entry.body)
                self._scheduler.on(event)
                if isinstance(event, ProcessStarted):
                    epoch, since = event.epoch, entry.time
                    if event.open_step is not None:
                        self._digests[event.open_step.step] = event.open_step.digest
                elif isinstance(event, EvaluationFinished):
                    self.evaluations[event.version] = event
                elif isinstance(event, StepFinished):
                    self._digests[event.step] = event.digest
                self.seconds += max(entry.time - since, 0.0)
                since = entry.time
                continue
            command = decode_command(entry.body)
            if isinstance(command, IssueGroup):
                self._issued[command.group] = command
            elif isinstance(command, Train):
                self._trains[command.step] = command
        return epoch

    async def _train_again(self, boundary: Boundary) -> StepReport | None:
        report = None
        last = max(self._trains, default=0)
        for step in range(boundary.step + 1, last + 1):
            self._progress(step, last)
            command = self._trains[step]
            await self._load_groups(command.groups)
            groups = tuple(self._stash.take(group) for group in command.groups)
            report = await self._executor.run(
                "trainer", partial(self._trainer.step, step=step, groups=groups), name="train_again"
            )
            self._check(step, report.version.digest)
        return report

    def _check(self, step: int, digest: str) -> None:
        journalled = self._digests.get(step)
        if journalled is None or journalled == digest:
            return
        message = (
            f"Step {step}, trained again from the journal, gives other weights "
            f"({digest[:12]}) than the journal records ({journalled[:12]})"
        )
        if self._scheduler.sync:
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
        self._stash.put(await self._executor.run("journal", read, name="read"))

    async def _restash(self) -> None:
        """Live groups of an async run keep their finished members; a sync run starts its open step again."""
        if self._scheduler.sync:
            return
        for group in self._scheduler.groups.values():
            self._stash.issue(group.id, base_version=group.base_version, size=len(group.slots))
            for index, slot in enumerate(group.slots):
                if slot.done:
                    await self._load_slot(group.id, index)


def _finished(report: StepReport | None) -> StepFinished:
    assert report is not None, "an open step is never older than the checkpoint"
    return StepFinished(
        step=report.step,
        digest=report.version.digest,
        trained_tokens=report.trained_tokens,
        zero_advantage_tokens=report.zero_advantage_tokens,
    )
