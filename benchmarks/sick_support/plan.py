"""Which runs there are: `plan.toml`, and the rule by which its entries become runs.

An entry of the sick has one cause at four doses, from the mildest to the strongest. The first and the third dose are
for tuning rules, the second and the fourth are held out; each dose is run with `repeats` seeds, and no two runs of the
plan have the same seed. An entry of the healthy is run once for tuning and once held out, `repeats` times over. So the
halves follow from the plan alone, before anything is run.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from sick_support.environment_faults import (
    FailuresAsZeros,
    FirstWordCounts,
    Loophole,
    PaidByLength,
    TalkativeStart,
    Unrewarded,
)
from sick_support.fault import Fault
from sick_support.sampling_faults import NeverStops, SharedStreams, StaleWeights
from sick_support.training_faults import EntropyBonus, Frozen, ShiftedLogprobs, UnmaskedReplies, WrongTemperature
from springtide.config import Recipe
from springtide.launch.customize import Customize
from springtide.recipe import load_recipe
from springtide.scheduling.config import StrictModel

PLAN = Path(__file__).with_name("plan.toml")

Half = Literal["tuning", "held_out"]

STRONGEST_FIRST = (3, 0, 2, 1)
"""Doses in the order of playing: what was planted has to be visible at both ends."""

AnyFault = Annotated[
    EntropyBonus
    | FailuresAsZeros
    | FirstWordCounts
    | Frozen
    | Loophole
    | NeverStops
    | PaidByLength
    | SharedStreams
    | ShiftedLogprobs
    | StaleWeights
    | TalkativeStart
    | UnmaskedReplies
    | Unrewarded
    | WrongTemperature,
    Field(discriminator="type"),
]
FAULT: TypeAdapter[Fault] = TypeAdapter(AnyFault)


class Base(StrictModel):
    """A built-in recipe with changes."""

    recipe: str
    set: tuple[str, ...] = ()


class SickEntry(StrictModel):
    """`dose`: a setting of the recipe, or `fault.FIELD`; `values` are its doses. `conditions`: what the run has
    besides, and is no fault. `expected`: symptoms of the guide, one of which at least is to be found."""

    cause: str
    base: str
    about: str
    dose: str
    values: tuple[float, float, float, float]
    set: tuple[str, ...] = ()
    fault: dict[str, Any] = {}
    conditions: tuple[dict[str, Any], ...] = ()
    expected: tuple[str, ...]


class HealthyEntry(StrictModel):
    """`verdict`: the worst that a diagnosis may say."""

    name: str
    base: str
    about: str
    set: tuple[str, ...] = ()
    faults: tuple[dict[str, Any], ...] = ()
    verdict: Literal["OK", "WATCH"] = "OK"


class Plan(StrictModel):
    repeats: int = Field(1, ge=1)
    bases: dict[str, Base]
    sick: tuple[SickEntry, ...]
    healthy: tuple[HealthyEntry, ...]


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """`dose` is None for a healthy run, and `cause` empty."""

    name: str
    half: Half
    seed: int
    base: Base
    set: tuple[str, ...]
    faults: tuple[Fault, ...]
    about: str
    cause: str = ""
    dose: str = ""
    value: float | None = None
    expected: tuple[str, ...] = ()
    verdict: str = "SICK"

    @property
    def sick(self) -> bool:
        return bool(self.cause)

    def recipe(self) -> Recipe:
        named = f"name=run-{self.seed}"
        return load_recipe(self.base.recipe, [*self.base.set, *self.set, f"seed={self.seed}", named])

    def customize(self) -> Customize:
        """All faults together, each around what the one before has made."""
        recipe = self.recipe()
        made = [fault.customize(recipe) for fault in self.faults]

        def source(inner: Any) -> Any:
            for one in made:
                inner = one.source(inner)
            return inner

        def engine(inner: Any) -> Any:
            for one in made:
                inner = one.engine(inner)
            return inner

        def sampler(inner: Any) -> Any:
            for one in made:
                inner = one.sampler(inner)
            return inner

        def trainer(inner: Any) -> None:
            for one in made:
                one.trainer(inner)

        return Customize(source=source, engine=engine, sampler=sampler, trainer=trainer)


def load_plan(path: Path = PLAN) -> Plan:
    return Plan.model_validate(tomllib.loads(path.read_text(encoding="utf-8")), strict=False)


def runs(plan: Plan) -> list[PlannedRun]:
    """All of them, in the order to play them: an interrupted series has something of everything."""
    rounds: list[list[PlannedRun]] = [[] for _ in range(4 * plan.repeats)]
    for repeat in range(plan.repeats):
        for number, run in _sick_runs(plan, repeat):
            rounds[4 * repeat + STRONGEST_FIRST.index(number)].append(run)
        for number, run in _healthy_runs(plan, repeat):
            rounds[4 * repeat + 2 * number].append(run)
    return [run for each in rounds for run in each]


def _sick_runs(plan: Plan, repeat: int) -> Iterator[tuple[int, PlannedRun]]:
    """With the number of the dose."""
    for place, entry in enumerate(plan.sick):
        for number, value in enumerate(entry.values):
            run = PlannedRun(
                name=f"{entry.cause}-{number + 1}-{'abcdefgh'[repeat]}",
                half="held_out" if number % 2 else "tuning",
                seed=1000 + 100 * place + 10 * number + repeat,
                base=plan.bases[entry.base],
                set=(*entry.set, *([] if entry.dose.startswith("fault.") else [f"{entry.dose}={value:g}"])),
                faults=_faults(entry, value),
                about=entry.about,
                cause=entry.cause,
                dose=entry.dose,
                value=value,
                expected=entry.expected,
            )
            yield number, run


def _faults(entry: SickEntry, value: float) -> tuple[Fault, ...]:
    conditions = tuple(FAULT.validate_python(one) for one in entry.conditions)
    if not entry.fault:
        return conditions
    field = entry.dose.removeprefix("fault.")
    dose: Any = int(value) if value == int(value) and field in ("first", "every") else value
    return (*conditions, FAULT.validate_python({**entry.fault, field: dose}))


def _healthy_runs(plan: Plan, repeat: int) -> Iterator[tuple[int, PlannedRun]]:
    """With the number of the half."""
    halves: tuple[Half, Half] = ("tuning", "held_out")
    for place, entry in enumerate(plan.healthy):
        for number, half in enumerate(halves):
            run = PlannedRun(
                name=f"healthy-{entry.name}-{half.replace('_', '-')}-{'abcdefgh'[repeat]}",
                half=half,
                seed=10000 + 100 * place + 10 * number + repeat,
                base=plan.bases[entry.base],
                set=entry.set,
                faults=tuple(FAULT.validate_python(fault) for fault in entry.faults),
                about=entry.about,
                verdict=entry.verdict,
            )
            yield number, run
