"""Symptoms as data: what has to hold, what it may come from, what to look at next. Read from `rules/*.toml`.

A rule speaks only where its preconditions hold and its metrics are there. Thresholds are relative to the run's own
beginning wherever that can be; each says where it comes from.
"""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field

from springtide.scheduling.config import StrictModel

Test = Literal[
    "above",
    "below",
    "above_start",
    "below_start",
    "below_peak",
    "above_noise",
    "below_noise",
    "rising",
    "falling",
    "flat",
    "growing",
    "spike",
    "constant",
    "zero",
    "not_finite",
    "at_start_above",
    "at_start_below",
    "with",
    "against",
]
"""What is asked of a metric: see `condition.py`."""

Grade = Literal["M", "C", "P", "I", "H", "D"]
"""Measured on real logs; the maintainers' own threshold; a paper with an ablation; an issue or one run; a heuristic; a
derivation."""


class Condition(StrictModel):
    """`metric` (or a setting, with `setting`) passes `test`. `run`: values in a row; `smooth`: values that are
    averaged; `other`: the metric that it goes `with` or `against`."""

    metric: str
    test: Test
    value: float = 0.0
    run: int = Field(2, ge=1)
    smooth: int = Field(1, ge=1)
    other: str = ""


class Guard(StrictModel):
    """The rule is not for a run whose `setting` is (or is not) one of these."""

    setting: str
    is_not: tuple[Any, ...] = ()
    is_: tuple[Any, ...] = Field((), alias="is")
    because: str


class Detection(StrictModel):
    """All of `when` at the same time make the symptom `level`. `source`: where the thresholds come from."""

    level: Literal["SICK", "WATCH"]
    when: tuple[Condition, ...]
    source: str
    grade: Grade


class Sign(StrictModel):
    """Adds `weight` to a cause's log-odds where all of `when` hold; `before`: and only if this metric left its baseline
    before the symptom began."""

    when: tuple[Condition, ...] = ()
    before: str = ""
    weight: float
    says: str


class PossibleCause(StrictModel):
    """`prior`: log-odds before any sign. `check`: what separates it from the others. `remedy`: by framework; `any` is
    for those that are not named."""

    id: str
    title: str
    prior: float = 0.0
    signs: tuple[Sign, ...] = ()
    check: str
    remedy: dict[str, str]


class Rule(StrictModel):
    """`needs`: metrics without which nothing can be said. `points`: values that it needs at least. `measured`: filled
    in by `benchmarks/doctor.py`; empty says that the rule has not been run on data."""

    id: str
    name: str
    title: str
    about: str
    needs: tuple[str, ...]
    points: int = 6
    guards: tuple[Guard, ...] = ()
    detect: tuple[Detection, ...]
    causes: tuple[PossibleCause, ...]
    looks_like: str = Field("", description="Healthy runs that look the same, and how they differ.")
    links: tuple[str, ...] = ()
    measured: str = ""


@cache
def rules() -> tuple[Rule, ...]:
    folder = files("springtide.diagnosis") / "rules"
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    return tuple(Rule.model_validate(tomllib.loads(each.read_text())) for each in found)
