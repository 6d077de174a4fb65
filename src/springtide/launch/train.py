"""A run from its folder to its result: prepare, warm-start, recover, train, report.

Every stage is skipped when the folder already holds what it makes, so starting, resuming and recovering from a kill
are one path.
"""

import asyncio
import contextlib
import errno
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from springtide.config import Recipe
from springtide.core.errors import SpringtideError, StorageFullError
from springtide.diagnosis.monitor import diagnosis_sink
from springtide.engines.calibration import Calibration
from springtide.evaluation.count import Count
from springtide.evaluation.report import write_report
from springtide.evaluation.result import RunResult, history
from springtide.launch.assembly import Assembly, Surroundings, assemble, make_engine, needs_costs
from springtide.launch.chats import Chat
from springtide.launch.checkpoints import RunCheckpoints
from springtide.launch.customize import Customize
from springtide.launch.lanes import lane_threads, start_lane
from springtide.launch.preparation import Preparation, open_source
from springtide.policy.device import kept_heap
from springtide.ports.executor import Executor
from springtide.runtime.clock import LoopClock
from springtide.runtime.executor import ThreadExecutor
from springtide.runtime.journal import SqliteJournal
from springtide.scheduling.events import EvaluationFinished
from springtide.telemetry.jsonl import JsonlSink, read_metrics
from springtide.telemetry.ledger import Ledger
from springtide.telemetry.run_folder import RunFolder
from springtide.telemetry.sink import Sink, SinkGroup
from springtide.telemetry.status import StatusBoard, View
from springtide.telemetry.tensorboard import tensorboard_sink
from springtide.training.checkpoint import CheckpointStore

FIRST_WAITS = {"engine": "start", "trainer": "start", "journal": "idle"}
"""What each lane waits for until somebody says otherwise."""


def train(
    *, recipe: Recipe, folder: RunFolder, view: View | None = None, customize: Customize | None = None
) -> RunResult:
    """Start or continue the run in `folder` and drive it to its end. Writes its report.

    `view` is shown every change of the run's status; `customize` puts something around parts of the run.
    SpringtideError for everything that a user can mend; whatever is raised, the folder can be resumed.
    """
    with kept_heap(), _board(recipe, folder, view) as board:
        result = asyncio.run(Run(recipe, folder, board, customize=customize).drive())
        write_report(folder, result)
        return result


def sft(*, recipe: Recipe, folder: RunFolder, chats: Sequence[Chat] | None = None, view: View | None = None) -> None:
    """Supervised training only, on `chats` or on the environment's demonstrations.

    Leaves checkpoint 0, which can be exported, or trained further by reinforcement learning by resuming the run. Where
    the chats are from is in the folder's `info.chats`, so that a run that was interrupted before imitates the same.
    """
    with kept_heap(), _board(recipe, folder, view) as board:
        asyncio.run(Run(recipe, folder, board, chats=chats).imitate())


@contextlib.contextmanager
def _board(recipe: Recipe, folder: RunFolder, view: View | None) -> Iterator[StatusBoard]:
    """The run's lock, and its status until it ends, however it does."""
    with _full_disk_named(folder), folder.lock():
        board = StatusBoard(folder.status, run=folder.id, steps=recipe.scheduling.steps)
        if view is not None:
            board.subscribe(view)
        try:
            with _full_disk_named(folder):
                yield board
        except KeyboardInterrupt:
            board.close(phase="interrupted")
            raise
        except BaseException as error:
            board.close(phase="failed", detail=str(error) if isinstance(error, SpringtideError) else repr(error))
            raise
        board.close()


@contextlib.contextmanager
def _full_disk_named(folder: RunFolder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StorageFullError(
            f"The disk is full: there is no room in {folder.path}; nothing is lost: free some space and resume the run."
        ) from error


class Run:
    """One process's work on a run."""

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        board: StatusBoard,
        *,
        chats: Sequence[Chat] | None = None,
        customize: Customize | None = None,
    ) -> None:
        self._recipe = recipe
        self._customize = customize or Customize()
        self._chats = chats
        self._folder = folder
        self._board = board
        self._started = time.monotonic()
        self._store = CheckpointStore(folder.checkpoints, recipe.checkpoint)
        self._sinks = SinkGroup(_sinks(recipe, folder))

    async def imitate(self) -> None:
        """Prepare and warm-start, no more."""
        executor = self._executor(Ledger(LoopClock().now))
        try:
            self._board.update(phase="preparing", detail="environments")
            async with open_source(self._recipe, self._folder) as source:
                await self._preparation(executor).prepare(source)
        finally:
            await executor.close()
            self._sinks.close()

    async def drive(self) -> RunResult:
        """Everything up to the result."""
        clock = LoopClock()
        ledger = Ledger(clock.now)
        for lane, reason in FIRST_WAITS.items():
            ledger.lane(lane).wait_for(reason)
        executor = self._executor(ledger)
        journal = None
        try:
            journal = await executor.run("journal", partial(SqliteJournal, self._folder.journal), name="open")
            around = Surroundings(
                clock=clock,
                executor=executor,
                ledger=ledger,
                journal=journal,
                checkpoints=RunCheckpoints(self._store),
                sinks=self._sinks,
                board=self._board,
            )
            assembly = await self._live(around)
        finally:
            await executor.close()
            if journal is not None:
                journal.close()
            self._sinks.close()
        return self._result(assembly)

    async def _live(self, around: Surroundings) -> Assembly:
        """The run from its preparation to its last checkpoint."""
        self._board.update(phase="preparing", detail="environments")
        async with open_source(self._recipe, self._folder) as opened:
            source = self._customize.source(opened)
            trainer, renderer = await self._preparation(around.executor).prepare(source)
            self._customize.trainer(trainer)
            engine = await around.executor.run("engine", partial(make_engine, self._recipe, trainer), name="prepare")
            costs = None
            if needs_costs(self._recipe):
                costs = await around.executor.run("engine", Calibration(engine).costs, name="prepare")
            assembly = assemble(
                self._recipe,
                trainer=trainer,
                engine=self._customize.engine(engine),
                sampler=self._customize.sampler,
                costs=costs,
                renderer=renderer,
                source=source,
                around=around,
            )
            await self._train(assembly)
            await self._keep_last(assembly, around)
        return assembly

    def _executor(self, ledger: Ledger) -> ThreadExecutor:
        return ThreadExecutor(ledger, on_lane_start=partial(start_lane, lane_threads(self._recipe)))

    def _preparation(self, executor: Executor) -> Preparation:
        return Preparation(
            self._recipe,
            self._folder,
            store=self._store,
            board=self._board,
            sinks=self._sinks,
            executor=executor,
            chats=self._chats,
        )

    async def _train(self, assembly: Assembly) -> None:
        self._board.update(phase="recovering", detail="")
        first = await assembly.recovery.recover()
        self._board.update(phase="training", detail="", step=assembly.trainer.version.number)
        heartbeat = asyncio.ensure_future(assembly.monitor.heartbeat(assembly.controller.waits))
        try:
            await assembly.controller.run(first)
        finally:
            heartbeat.cancel()

    async def _keep_last(self, assembly: Assembly, around: Surroundings) -> None:
        """A run ends with the checkpoint of its last step, also if the disk was full when that was due."""
        last = assembly.trainer.version.number
        if around.checkpoints.newest < last:
            save = partial(around.checkpoints.save, last, assembly.trainer.save, assembly.scheduler.boundary)
            await around.executor.run("trainer", save, name="checkpoint")

    def _result(self, assembly: Assembly) -> RunResult:
        ends = assembly.scheduler.milestones
        evaluations = assembly.recovery.evaluations | assembly.monitor.evaluations
        goodput = assembly.monitor.goodput or history(read_metrics(self._folder.metrics)).goodput_tokens_per_s
        return RunResult(
            run=self._folder.id,
            seconds=assembly.recovery.seconds + time.monotonic() - self._started,
            before=_count(evaluations.get(ends.first)),
            after=_count(evaluations.get(ends.last)),
            goodput_tokens_per_s=goodput or 0.0,
        )


def _sinks(recipe: Recipe, folder: RunFolder) -> list[Sink]:
    """The diagnosis reads what the first one wrote."""
    makers: list[Callable[[], Sink | None]] = [
        lambda: JsonlSink(folder.metrics),
        lambda: tensorboard_sink(folder.tensorboard),
        lambda: diagnosis_sink(folder.path, folder.diagnosis, recipe.diagnosis.every),
    ]
    return [sink for make in makers if (sink := make()) is not None]


def _count(evaluation: EvaluationFinished | None) -> Count | None:
    if evaluation is None:
        return None
    return Count(evaluation.successes, evaluation.valid, evaluation.invalid)
