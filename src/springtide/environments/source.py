"""From a recipe's environment section to the source of its tasks, demonstrations and environments."""

from collections.abc import Callable, Sequence
from typing import Any

from springtide.core.demonstration import Demonstration
from springtide.core.member import Purpose
from springtide.core.outcome import Outcome
from springtide.core.task import Task
from springtide.core.trajectory import Trajectory
from springtide.environments.config import CustomConfig, EnvironmentConfig, ShellConfig, WordGameConfig
from springtide.environments.guard import GuardedEnvironment, Scorer, guarded_scores
from springtide.environments.gym import GymTextEnvironment
from springtide.environments.loader import Kind, check_options, load_class
from springtide.environments.shell.source import ShellSource
from springtide.environments.stream import Stream, make_task
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
                lambda: WordGame(level=level, flaw_rate=flaw_rate), name=f"word_game{config.level}", seed=seed
            )
        case CustomConfig():
            return _custom(config, seed)


def _custom(config: CustomConfig, seed: int) -> EnvironmentSource:
    found, kind = load_class(config.path)
    check_options(config.path, found, config.options)

    def create() -> Environment:
        inner = found(**config.options)
        if kind is Kind.GYM:
            return GymTextEnvironment(inner, reward=config.gym_reward, blocking=config.blocking)
        return inner  # type: ignore[no-any-return]

    limits = PhaseLimits(reset=config.phase_seconds, step=config.phase_seconds, verify=config.phase_seconds)
    scorer = getattr(found, "score_group", None)
    return ClassSource(create, name=found.__name__, seed=seed, limits=limits, scorer=scorer)


class ClassSource:
    """Environments that need nothing but a seed. An object with a method `demonstration(task)` can be imitated."""

    def __init__(
        self,
        create: Callable[[], Environment],
        *,
        name: str,
        seed: int,
        limits: PhaseLimits | None = None,
        scorer: Scorer | None = None,
    ) -> None:
        self.limits = limits or PhaseLimits()
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
        demonstrate: Any = getattr(self._create(), "demonstration", None)
        if demonstrate is None:
            return None
        task = make_task(environment=self._name, run_seed=self._seed, stream=Stream.DEMONSTRATE, index=index)
        shown: Demonstration | None = demonstrate(task)
        return shown

    def create(self) -> Environment:
        return GuardedEnvironment(self._create, self.limits)

    async def score_group(self, members: Sequence[Trajectory]) -> Sequence[Outcome]:
        assert self._scorer is not None, "nobody asks where scores_groups is False"
        return await guarded_scores(self._scorer, members, seconds=self.limits.verify)

    async def close(self) -> None:
        pass
