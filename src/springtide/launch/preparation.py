"""What stands before a run is recovered: environments, tokenizer, model, checkpoint 0 and the trainer.

Every stage is skipped when the folder already holds what it makes. Whatever computes or reads files does so on the
trainer's lane; the warm start ends there soon after the run is cancelled.
"""

import asyncio
import contextlib
import errno
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from springtide.config import Recipe
from springtide.core.demonstration import Demonstration
from springtide.core.errors import InvalidEpisodeError, RunDamagedError, SpringtideError, UsageError
from springtide.core.member import Purpose
from springtide.environments.config import ShellConfig
from springtide.environments.source import open_environments
from springtide.launch.assembly import make_trainer
from springtide.launch.chats import Chat, read_chats
from springtide.launch.checkpoints import RunCheckpoints
from springtide.launch.model_folder import (
    initial_model,
    open_tokenizer,
    prepare_model_folder,
    require_context_fits,
    require_tokenizer_matches,
    resumed_model,
)
from springtide.launch.warm_start import Imitation, collect, from_chats, warm_start
from springtide.policy.config import PretrainedModelConfig
from springtide.policy.device import return_freed_memory
from springtide.policy.tokenizer import TransformersTokenizer
from springtide.ports.environment import EnvironmentSource, Observation
from springtide.ports.executor import Executor
from springtide.ports.sandbox import Sandbox
from springtide.rollout.renderer import Renderer
from springtide.sandbox import open_sandbox
from springtide.scheduling.events import Boundary
from springtide.telemetry.record import MetricRecord
from springtide.telemetry.run_folder import RunFolder
from springtide.telemetry.sink import SinkGroup
from springtide.telemetry.status import StatusBoard
from springtide.training.checkpoint import CheckpointStore
from springtide.training.trainer import TorchTrainer

T = TypeVar("T")

PROBES = 3
"""Tasks whose opening is looked at before a run starts; the first that can be reset decides how turns are rendered."""


class StoppedError(Exception):
    """Ends work on a lane for which nobody waits any more."""


@contextlib.asynccontextmanager
async def open_source(recipe: Recipe, folder: RunFolder) -> AsyncIterator[EnvironmentSource]:
    """The run's environments, and the sandbox that they need, until the end of the block."""
    config = recipe.environment
    sandbox = limits = None
    if isinstance(config, ShellConfig):
        sandbox = open_sandbox(recipe.sandbox)
        limits = recipe.sandbox.limits(wall_seconds=config.command_seconds)
    source = open_environments(config, seed=recipe.seed, sandbox=sandbox, limits=limits)
    try:
        if sandbox is not None:
            await _start(sandbox)
            folder.record(sandbox_level=sandbox.level.value)
        await source.open()
        yield source
    finally:
        await source.close()
        if sandbox is not None:
            await sandbox.close()


class Preparation:
    """One process's work on a run before anything is rolled out. `chats` are imitated in place of demonstrations."""

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        *,
        store: CheckpointStore,
        board: StatusBoard,
        sinks: SinkGroup,
        executor: Executor,
        chats: Sequence[Chat] | None = None,
    ) -> None:
        self._recipe = recipe
        self._folder = folder
        self._store = store
        self._board = board
        self._sinks = sinks
        self._executor = executor
        self._chats = chats
        self._stopped = threading.Event()

    async def prepare(self, source: EnvironmentSource) -> tuple[TorchTrainer, Renderer]:
        """The trainer, whose weights are those of checkpoint 0 or still to be loaded, and the renderer.

        UsageError for what the user can mend, RunDamagedError when the folder has lost what it needs.
        """
        fresh = not self._store.steps()
        if fresh:
            self._require_no_parent()
            self._chats = self._chats or self._own_chats()
        opening = await _opening(source)
        self._board.update(phase="preparing", detail="model")
        tokenizer, renderer = await self._on_lane(partial(self._read, source, opening))
        model = await self._on_lane(partial(self._model, tokenizer, fresh=fresh))
        if fresh and self._recipe.warm_start.steps > 0:
            await self._warm_start(model, source, renderer)
            return_freed_memory()
        trainer = await self._on_lane(partial(make_trainer, self._recipe, model))
        if fresh:
            save = partial(RunCheckpoints(self._store).save, 0, trainer.save, Boundary())
            await self._on_lane(save, name="checkpoint")
        return trainer, renderer

    def _require_no_parent(self) -> None:
        """A branch without its checkpoint would be trained from the beginning, as if that were what was asked for."""
        parent = self._folder.info.parent
        if parent is not None:
            raise RunDamagedError(
                f"Run {self._folder.id} was branched from run {parent.run} at step {parent.step} and has lost the "
                f"checkpoint of that step; restore it from a copy, or branch again with --from {parent.step}."
            )

    def _own_chats(self) -> list[Chat] | None:
        """The chats that an earlier process was told to imitate and did not get to."""
        path = self._folder.info.chats
        if not path:
            return None
        try:
            return read_chats(Path(path))
        except UsageError as error:
            raise UsageError(
                f"Run {self._folder.id} imitates chats that cannot be read any more ({str(error).rstrip('.')}); put "
                "the file back, or start a new run."
            ) from error

    async def _on_lane(self, work: Callable[[], T], *, name: str = "prepare") -> T:
        try:
            return await self._executor.run("trainer", work, name=name)
        except asyncio.CancelledError:
            self._stopped.set()
            raise

    def _read(self, source: EnvironmentSource, opening: Observation) -> tuple[TransformersTokenizer, Renderer]:
        """The tokenizer, and how turns become its tokens."""
        recipe, folder = self._recipe, self._folder.model
        texts = [message.text for message in opening.messages]
        prepare_model_folder(folder, recipe, source.demonstration, texts)
        name = recipe.model.path if isinstance(recipe.model, PretrainedModelConfig) else ""
        tokenizer = open_tokenizer(folder, name=name)
        renderer = Renderer(tokenizer, "json_tools" if opening.tools else "plain")
        # Chats may hold any messages, whatever the environment answers.
        tool_replies_only = source.tool_replies_only and self._chats is None
        renderer.check(system=opening.messages[0].role == "system", tool_replies_only=tool_replies_only)
        _check_prompt_fits(renderer, opening, recipe)
        return tokenizer, renderer

    def _model(self, tokenizer: TransformersTokenizer, *, fresh: bool) -> Any:
        recipe = self._recipe
        model = initial_model(recipe, tokenizer) if fresh else resumed_model(self._folder.model, recipe)
        require_tokenizer_matches(model, tokenizer)
        require_context_fits(model, recipe)
        return model

    async def _warm_start(self, model: Any, source: EnvironmentSource, renderer: Renderer) -> None:
        """Make `model` the policy that reinforcement learning starts from."""
        self._board.update(phase="warm start", detail="demonstrations")
        imitation = await self._on_lane(partial(self._collect, source, renderer))
        if imitation.success.rate is not None:
            self._write(0, {"warm_start/demonstration_success": imitation.success.rate})
        began = time.monotonic()
        await self._on_lane(partial(warm_start, model, imitation, self._recipe, self._imitated), name="warm_start")
        self._write(0, {"warm_start/seconds": time.monotonic() - began})

    def _collect(self, source: EnvironmentSource, renderer: Renderer) -> Imitation:
        context = self._recipe.rollout.max_context
        if self._chats is not None:
            return from_chats(self._chats, renderer, max_context=context)

        def demonstration(index: int) -> Demonstration | None:
            self._go_on()
            return source.demonstration(index)

        return collect(
            demonstration,
            renderer,
            number=self._recipe.warm_start.demonstrations,
            max_context=context,
            tool_replies_only=source.tool_replies_only,
        )

    def _imitated(self, step: int, metrics: dict[str, float]) -> None:
        """Called on the trainer's lane."""
        self._go_on()
        steps = self._recipe.warm_start.steps
        self._board.update(phase="warm start", detail=f"step {step} of {steps}, loss {metrics['warm_start/loss']:.3f}")
        if step % 10 == 0 or step == steps:
            self._write(step - steps, metrics)

    def _go_on(self) -> None:
        """A lane's thread cannot be cancelled: what it repeats asks here."""
        if self._stopped.is_set():
            raise StoppedError

    def _write(self, step: int, metrics: dict[str, float]) -> None:
        self._sinks.write(MetricRecord(time=time.time(), step=step, metrics=metrics))


async def _start(sandbox: Sandbox) -> None:
    """UnsafeSandboxError as `Sandbox.start` says; SpringtideError for whatever else keeps it from starting."""
    try:
        await sandbox.start()
    except (InvalidEpisodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        why = str(error).rstrip(".") or "it did not answer in time"
        raise SpringtideError(f"The sandbox did not start ({why}); run `springtide sandbox` to see why.") from error


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
