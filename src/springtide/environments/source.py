"""From a recipe's environment section to the source of its tasks, demonstrations and environments."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from springtide.core.demonstration import Demonstration
from springtide.core.errors import UsageError
from springtide.core.member import Purpose
from springtide.core.outcome import Outcome
from springtide.core.task import Task
from springtide.core.trajectory import Trajectory
from springtide.environments.config import CustomConfig, EnvironmentConfig, ShellConfig, WordGameConfig
from springtide.environments.guard import (
    GuardedEnvironment,
    Scorer,
    close_quietly,
    guarded_scores,
    not_json,
    well_formed,
)
from springtide.environments.gym import GymTextEnvironment, gym_hooks
from springtide.environments.hooks import Hooks
from springtide.environments.loader import Kind, check_options, load_class
from springtide.environments.shell.source import ShellSource
from springtide.environments.stream import Stream, make_task
from springtide.environments.text import TextEnvironment, text_hooks
from springtide.environments.word_game import WordGame
from springtide.ports.environment import Environment, EnvironmentSource, PhaseLimits
from springtide.ports.sandbox import Limits, Sandbox


def open_environments(
    config: EnvironmentConfig, *, seed: int, sandbox: Sandbox | None = None, limits: Limits | None = None
) -> EnvironmentSource:
    """The source that `config` asks for. `seed` is the run's. UsageError when a custom class cannot be loaded.

    Only the shell plays in boxes of `sandbox`, each with `limits`; the time of a command is the environment's own.
    """
    match config:
        case ShellConfig():
            return ShellSource(config, seed=seed, sandbox=sandbox, limits=limits or Limits())
        case WordGameConfig():
            level, flaw_rate = config.level, config.flaw_rate
            return ClassSource(
                lambda: WordGame(level=level, flaw_rate=flaw_rate),
                name=f"word_game{config.level}",
                seed=seed,
                imitable=True,
            )
        case CustomConfig():
            return _custom(config, seed)


def _custom(config: CustomConfig, seed: int) -> EnvironmentSource:
    found, kind = load_class(config.path)
    check_options(config.path, found, config.options)
    if kind is not Kind.GYM:
        _require_no_gym_settings(config, found)

    def create() -> Environment:
        inner = found(**config.options)
        if kind is Kind.GYM:
            return GymTextEnvironment(inner, reward=config.gym_reward, blocking=config.blocking)
        return inner  # type: ignore[no-any-return]

    limits = PhaseLimits(reset=config.phase_seconds, step=config.phase_seconds, verify=config.phase_seconds)
    return ClassSource(
        create,
        name=found.__name__,
        seed=seed,
        limits=limits,
        scorer=getattr(found, "score_group", None),
        hooks=_hooks(config, found, kind),
        imitable=_can_be_imitated(found, kind),
        tool_replies_only=bool(getattr(found, "tool_replies_only", False)),
    )


def _require_no_gym_settings(config: CustomConfig, found: type[Any]) -> None:
    """UsageError for a setting that this class would ignore."""
    if config.blocking:
        remedy = "set `blocking = True` in the class" if issubclass(found, TextEnvironment) else "let its hooks await"
        raise UsageError(
            f"environment.blocking = true is for Gym-style classes, and {found.__name__} is none: leave it out and "
            f"{remedy}."
        )
    if config.gym_reward != "sum":
        raise UsageError(
            f'environment.gym_reward = "{config.gym_reward}" is for Gym-style classes, and {found.__name__} is none: '
            "leave it out and let the class reward as it should."
        )


def _hooks(config: CustomConfig, found: type[Any], kind: Kind) -> Hooks:
    if kind is Kind.GYM:
        return gym_hooks(found, blocking=config.blocking)
    if issubclass(found, TextEnvironment):
        return text_hooks(found, blocking=found.blocking)
    return Hooks(found.__name__, remedy="move what takes long to reset")


def _can_be_imitated(found: type[Any], kind: Kind) -> bool:
    if issubclass(found, TextEnvironment):
        return found.demonstrate is not TextEnvironment.demonstrate
    return kind is Kind.CONTRACT and hasattr(found, "demonstration")


class ClassSource:
    """Environments that need nothing but a seed. `imitable`: they have a method `demonstration(task)`, which may give
    None. `hooks` tells how what the class implements is called; None for one of our own, which never waits."""

    def __init__(
        self,
        create: Callable[[], Environment],
        *,
        name: str,
        seed: int,
        limits: PhaseLimits | None = None,
        scorer: Scorer | None = None,
        hooks: Hooks | None = None,
        imitable: bool = False,
        tool_replies_only: bool = False,
    ) -> None:
        self.limits = limits or PhaseLimits()
        self.tool_replies_only = tool_replies_only
        self._hooks = hooks
        self._imitable = imitable
        self.scores_groups = scorer is not None
        self._scorer = scorer
        self._create = create
        self._name = name
        self._seed = seed

    def task(self, *, purpose: str, index: int) -> Task:
        stream = Stream.EVALUATE if purpose == Purpose.EVALUATE else Stream.TRAIN
        return make_task(environment=self._name, run_seed=self._seed, stream=stream, index=index)

    async def open(self) -> None:
        pass

    def demonstration(self, index: int) -> Demonstration | None:
        """Called where no event loop runs. UsageError when the class fails to make one, or makes something else."""
        if not self._imitable:
            return None
        task = make_task(environment=self._name, run_seed=self._seed, stream=Stream.DEMONSTRATE, index=index)
        hook = "demonstration"
        inner: Any = None
        shown: Demonstration | None = None
        try:
            inner = self._create()
            hook = "demonstrate" if isinstance(inner, TextEnvironment) else hook
            shown = inner.demonstration(task)
            problem = _flaw_of(shown)
        except (Exception, SystemExit) as error:
            problem = f"{type(error).__name__}: {error}".rstrip(": ")
        finally:
            self._close(inner)
        if problem:
            raise UsageError(
                f"environment: demonstration {index} of {self._name} failed, {problem.rstrip('.')}; mend `{hook}`."
            )
        return shown

    def _close(self, inner: Any) -> None:
        """A text environment that does not override `close` has nothing to close, and a loop for it would cost."""
        if inner is not None and type(inner).close is not TextEnvironment.close:
            asyncio.run(close_quietly(inner, owner=self._name, seconds=self.limits.close))

    def create(self) -> Environment:
        return GuardedEnvironment(self._create, self.limits, self._hooks, tool_replies_only=self.tool_replies_only)

    async def score_group(self, members: Sequence[Trajectory]) -> Sequence[Outcome]:
        assert self._scorer is not None, "nobody asks where scores_groups is False"
        return await guarded_scores(self._scorer, members, seconds=self.limits.verify)

    async def close(self) -> None:
        pass


def _flaw_of(shown: object) -> str:
    """Why this is no demonstration; empty if it is one, or None, which says that there is none."""
    if shown is None:
        return ""
    if not isinstance(shown, Demonstration):
        return f"it is {type(shown).__name__}, not a Demonstration"
    if not all(well_formed(message) for message in shown.messages):
        return "its messages are not Messages with a known role and storable text"
    if not any(message.role == "assistant" for message in shown.messages):
        return "the agent says nothing in it"
    problem = not_json(shown.messages, shown.tools)
    return f"it has {problem}" if problem else ""
