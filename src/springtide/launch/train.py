"""A run from its folder to its result: prepare, warm-start, recover, train, report.

Every stage is skipped when the folder already holds what it makes, so starting, resuming and recovering from a kill
are one path.
"""

import asyncio
import contextlib
import errno
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from springtide.config import Recipe
from springtide.core.errors import InvalidEpisodeError, SpringtideError, StorageFullError, UsageError
from springtide.core.member import Purpose
from springtide.environments.config import ShellConfig
from springtide.environments.source import open_environments
from springtide.evaluation.count import Count
from springtide.evaluation.report import write_report
from springtide.evaluation.result import RunResult, history
from springtide.launch.assembly import Assembly, Surroundings, assemble, make_trainer
from springtide.launch.chats import Chat, read_chats
from springtide.launch.checkpoints import RunCheckpoints
from springtide.launch.lanes import lane_threads, start_lane
from springtide.launch.model_folder import (
    initial_model,
    open_tokenizer,
    prepare_model_folder,
    require_context_fits,
    require_tokenizer_matches,
)
from springtide.launch.warm_start import Imitation, collect, from_chats, warm_start
from springtide.policy.config import PretrainedModelConfig
from springtide.ports.environment import EnvironmentSource, Observation
from springtide.ports.executor import Executor
from springtide.rollout.renderer import Renderer
from springtide.runtime.clock import LoopClock
from springtide.runtime.executor import ThreadExecutor
from springtide.runtime.journal import SqliteJournal
from springtide.sandbox import open_sandbox
from springtide.scheduling.events import Boundary, EvaluationFinished
from springtide.telemetry.jsonl import JsonlSink, read_metrics
from springtide.telemetry.ledger import Ledger
from springtide.telemetry.record import MetricRecord
from springtide.telemetry.run_folder import RunFolder
from springtide.telemetry.sink import Sink, SinkGroup
from springtide.telemetry.status import StatusBoard, View
from springtide.telemetry.tensorboard import tensorboard_sink
from springtide.training.checkpoint import CheckpointStore
from springtide.training.trainer import TorchTrainer

FIRST_WAITS = {"engine": "start", "trainer": "start", "journal": "idle"}
"""What each lane waits for until somebody says otherwise."""

PROBES = 3
"""Tasks whose opening is looked at before a run starts; the first that can be reset decides how turns are rendered."""


Customize = Callable[[TorchTrainer], None]
"""Changes a trainer before its first step: wraps stages of its update (a check, a capture, a known fault)."""


def train(
    *, recipe: Recipe, folder: RunFolder, view: View | None = None, customize: Customize | None = None
) -> RunResult:
    """Start or continue the run in `folder` and drive it to its end. Writes its report.

    `view` is shown every change of the run's status. SpringtideError for everything that a user can mend; whatever is
    raised, the folder can be resumed.
    """
    with _board(recipe, folder, view) as board:
        result = asyncio.run(Run(recipe, folder, board, customize=customize).drive())
        write_report(folder, result)
        return result


def sft(*, recipe: Recipe, folder: RunFolder, data: Path | None = None, view: View | None = None) -> None:
    """Supervised training only, on the environment's demonstrations or on the chats of `data`.

    Leaves checkpoint 0, which can be exported, or trained further by reinforcement learning by resuming the run.
    """
    chats = read_chats(data) if data is not None else None
    if recipe.warm_start.steps == 0:
        raise UsageError("warm_start.steps is 0: there is nothing to train; set it to the number of steps.")
    with _board(recipe, folder, view) as board:
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
        self._customize = customize
        self._chats = chats
        self._folder = folder
        self._board = board
        self._started = time.monotonic()
        store = CheckpointStore(folder.checkpoints, recipe.checkpoint)
        self._store = store
        self._sinks = SinkGroup(_sinks(folder))

    async def imitate(self) -> None:
        """Prepare and warm-start, no more."""
        executor = self._executor(Ledger(LoopClock().now))
        try:
            async with self._environments() as source:
                await self._prepare(source, executor)
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
        journal = SqliteJournal(self._folder.journal)
        around = Surroundings(
            clock=clock,
            executor=executor,
            ledger=ledger,
            journal=journal,
            checkpoints=RunCheckpoints(self._store),
            sinks=self._sinks,
            board=self._board,
        )
        try:
            async with self._environments() as source:
                trainer, renderer = await self._prepare(source, executor)
                if self._customize is not None:
                    self._customize(trainer)
                assembly = assemble(self._recipe, trainer=trainer, renderer=renderer, source=source, around=around)
                await self._train(assembly)
                await self._keep_last(assembly, around)
        finally:
            await executor.close()
            journal.close()
            self._sinks.close()
        return self._result(assembly)

    def _executor(self, ledger: Ledger) -> ThreadExecutor:
        return ThreadExecutor(ledger, on_lane_start=partial(start_lane, lane_threads(self._recipe)))

    # -- stages ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _environments(self) -> AsyncIterator[EnvironmentSource]:
        config = self._recipe.environment
        self._board.update(phase="preparing", detail="environments")
        sandbox = limits = None
        if isinstance(config, ShellConfig):
            sandbox = open_sandbox(self._recipe.sandbox)
            limits = self._recipe.sandbox.limits(wall_seconds=config.command_seconds)
        source = open_environments(config, seed=self._recipe.seed, sandbox=sandbox, limits=limits)
        try:
            if sandbox is not None:
                await sandbox.start()
                self._folder.record(sandbox_level=sandbox.level.value)
            await source.open()
            yield source
        finally:
            await source.close()
            if sandbox is not None:
                await sandbox.close()

    async def _prepare(self, source: EnvironmentSource, executor: Executor) -> tuple[TorchTrainer, Renderer]:
        """Tokenizer, model, trainer, and checkpoint 0."""
        opening = await _opening(source)
        texts = [message.text for message in opening.messages]
        self._board.update(phase="preparing", detail="model")
        model_folder = self._folder.model
        write_model = partial(prepare_model_folder, model_folder, self._recipe, source.demonstration, texts)
        await executor.run("trainer", write_model, name="prepare")
        chosen = self._recipe.model
        tokenizer = open_tokenizer(model_folder, name=chosen.path if isinstance(chosen, PretrainedModelConfig) else "")
        renderer = Renderer(tokenizer, "json_tools" if opening.tools else "plain")
        renderer.check(system=opening.messages[0].role == "system")
        _check_prompt_fits(renderer, opening, self._recipe)
        build = partial(initial_model, model_folder, self._recipe, tokenizer)
        model = await executor.run("trainer", build, name="prepare")
        require_tokenizer_matches(model, tokenizer)
        require_context_fits(model, self._recipe)
        if not self._store.steps():
            await self._warm_start(model, source, renderer, executor)
        return await executor.run("trainer", partial(make_trainer, self._recipe, model), name="prepare"), renderer

    async def _warm_start(self, model: Any, source: EnvironmentSource, renderer: Renderer, executor: Executor) -> None:
        """Checkpoint 0: the policy that reinforcement learning starts from."""
        recipe = self._recipe
        if recipe.warm_start.steps > 0:
            self._board.update(phase="warm start", detail="demonstrations")
            imitation = await executor.run("trainer", partial(self._collect, source, renderer), name="prepare")
            if imitation.ceiling.rate is not None:
                self._write(0, {"warm_start/ceiling": imitation.ceiling.rate})
            work = partial(warm_start, model, imitation, recipe, self._imitated)
            began = time.monotonic()
            await executor.run("trainer", work, name="warm_start")
            self._write(0, {"warm_start/seconds": time.monotonic() - began})
        trainer = make_trainer(recipe, model)
        checkpoints = RunCheckpoints(self._store)
        await executor.run("trainer", partial(checkpoints.save, 0, trainer.save, Boundary()), name="checkpoint")

    def _collect(self, source: EnvironmentSource, renderer: Renderer) -> Imitation:
        context = self._recipe.rollout.max_context
        if self._chats is not None:
            return from_chats(self._chats, renderer, max_context=context)
        number = self._recipe.warm_start.demonstrations
        return collect(source.demonstration, renderer, number=number, max_context=context)

    def _imitated(self, step: int, metrics: dict[str, float]) -> None:
        """Called on the trainer's lane."""
        steps = self._recipe.warm_start.steps
        self._board.update(phase="warm start", detail=f"step {step} of {steps}, loss {metrics['warm_start/loss']:.3f}")
        if step % 10 == 0 or step == steps:
            self._write(step - steps, metrics)

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

    def _write(self, step: int, metrics: dict[str, float]) -> None:
        self._sinks.write(MetricRecord(time=time.time(), step=step, metrics=metrics))


async def _opening(source: EnvironmentSource) -> Observation:
    """What an episode begins with. UsageError when no environment can be reset."""
    problem = ""
    for index in range(PROBES):
        environment = source.create()
        try:
            return await environment.reset(source.task(purpose=Purpose.TRAIN, index=index))
        except InvalidEpisodeError as error:
            problem = error.detail
        finally:
            await environment.close()
    raise UsageError(
        f"environment: none of {PROBES} episodes could begin: {problem.rstrip('.')}; mend the environment."
    )


def _check_prompt_fits(renderer: Renderer, opening: Observation, recipe: Recipe) -> None:
    prompt = len(renderer.prompt(opening.messages, opening.tools))
    if prompt >= recipe.rollout.max_context:
        raise UsageError(
            f"rollout.max_context {recipe.rollout.max_context} has no room for the first task's prompt of {prompt} "
            "tokens; raise it."
        )


def _sinks(folder: RunFolder) -> list[Sink]:
    makers: list[Callable[[], Sink | None]] = [
        lambda: JsonlSink(folder.metrics),
        lambda: tensorboard_sink(folder.tensorboard),
    ]
    return [sink for make in makers if (sink := make()) is not None]


def _count(evaluation: EvaluationFinished | None) -> Count | None:
    if evaluation is None:
        return None
    return Count(evaluation.successes, evaluation.valid, evaluation.invalid)
