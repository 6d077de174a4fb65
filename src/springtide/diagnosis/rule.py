"""Symptoms and causes as data: what has to hold, what it may come from, what to look at next. Read from
`rules/*.toml` and `causes.toml`.

A rule speaks only where its guards let it and its metrics are there. Thresholds are relative to the run's own beginning
wherever that can be; each says where it comes from. Causes are one list for all symptoms, so that what several symptoms
point at comes first.
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
    "above_other",
    "below_other",
    "rising",
    "falling",
    "flat",
    "growing",
    "spike",
    "saw_tooth",
    "constant",
    "zero",
    "zeros_beyond",
    "not_finite",
    "at_start_above",
    "at_start_below",
    "with",
    "against",
    "logged",
    "is",
]
"""What is asked of a metric, or of a setting (`above`, `below`, `is`): see `condition.py`."""

POINTWISE: frozenset[Test] = frozenset(
    {
        "above",
        "below",
        "zero",
        "constant",
        "above_start",
        "below_start",
        "above_noise",
        "below_noise",
        "below_peak",
        "above_other",
        "below_other",
    }
)
"""Tests of single values, which `run` of them in a row have to pass; what looks back over many counts at once."""

Grade = Literal["M", "C", "P", "I", "H", "D"]
"""Measured on real logs; the maintainers' own threshold; a paper with an ablation; an issue or one run; a heuristic; a
derivation."""


class Condition(StrictModel):
    """`metric`, or `setting`, passes `test`. A metric with `*` in its name stands for any that matches.

    `run`: values in a row; `smooth`: values that are averaged; `over`: values that a trend or a correlation is taken
    over, 0 for all so far; `start`: values that the run's beginning is the median of; `other`: the metric it is
    compared with; `values`: what a setting `is` one of."""

    metric: str = ""
    setting: str = ""
    test: Test
    value: float = 0.0
    values: tuple[Any, ...] = ()
    run: int = Field(2, ge=1)
    smooth: int = Field(1, ge=1)
    over: int = Field(0, ge=0)
    start: int = Field(5, ge=1)
    other: str = ""
    sure: float = Field(5.0, gt=0, description="Noise's standard deviations that a loss has to be, at least.")
    within: int = Field(0, ge=0, description="It still counts this many values after it held.")
    negate: bool = Field(False, description="It counts where the test could be made and fails.")
    onset: bool = Field(False, description="Needed for the symptom to begin, not for it to go on.")
    context: bool = Field(False, description="What kind of run it is about; no evidence, and nothing that moved.")


class Guard(StrictModel):
    """The rule is not for a run whose `setting` is one of `is`, or is known and none of `is_not`."""

    setting: str
    is_not: tuple[Any, ...] = ()
    is_: tuple[Any, ...] = Field((), alias="is")
    because: str


class Detection(StrictModel):
    """All of `when` at the same time make the symptom `level`. One that no longer holds at the end of the run is
    WATCH at most. `source`: where the thresholds come from."""

    level: Literal["SICK", "WATCH"]
    when: tuple[Condition, ...] = Field(min_length=1)
    source: str
    grade: Grade


class Sign(StrictModel):
    """Adds `weight` to a cause's log-odds where all of `when` hold at the same time, none of `never` does though all
    could be asked, and `symptom`, if named, is there; `before`: and only if this metric left its baseline before the
    symptom's own metrics did."""

    when: tuple[Condition, ...] = ()
    never: tuple[Condition, ...] = ()
    symptom: str = ""
    before: str = ""
    weight: float
    says: str


class KnownCause(StrictModel):
    """`prior`: log-odds before any sign. `check`: what separates it from the others. `remedy`: by framework; `any` is
    for those that are not named."""

    id: str = ""
    title: str
    prior: float = 0.0
    signs: tuple[Sign, ...] = ()
    check: str
    remedy: dict[str, str]
    links: tuple[str, ...] = ()


class PossibleCause(StrictModel):
    """What a symptom may come from: one of `causes.toml`, or one that is written out here since no other symptom has
    it. `weight`: log-odds that the symptom alone adds to it."""

    id: str
    weight: float = 1.0
    title: str = ""
    prior: float = 0.0
    check: str = ""
    remedy: dict[str, str] = {}

    @property
    def known(self) -> KnownCause:
        if self.title:
            return KnownCause(id=self.id, title=self.title, prior=self.prior, check=self.check, remedy=self.remedy)
        return causes()[self.id]


class Rule(StrictModel):
    """`needs`: metrics without which nothing can be said. `points`: values that it needs at least. `elsewhere`: where
    to look for a symptom that no log of numbers shows; such a rule detects nothing. `measured`: as of the committed
    results of `benchmarks/doctor.py`; empty says that the rule has not been run on data."""

    id: str
    name: str
    title: str
    about: str
    needs: tuple[str, ...] = ()
    points: int = 6
    guards: tuple[Guard, ...] = ()
    detect: tuple[Detection, ...] = ()
    causes: tuple[PossibleCause, ...] = ()
    looks_like: str = Field("", description="Healthy runs that look the same, and how they differ.")
    elsewhere: str = ""
    links: tuple[str, ...] = ()
    measured: str = ""


@cache
def rules() -> tuple[Rule, ...]:
    """In the order of ids, with what was measured of each (`measured.toml`)."""
    folder = files("springtide.diagnosis") / "rules"
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    read = [Rule.model_validate(tomllib.loads(each.read_text())) for each in found]
    results = files("springtide.diagnosis") / "measured.toml"
    measured = tomllib.loads(results.read_text()) if results.is_file() else {}
    return tuple(each.model_copy(update={"measured": measured.get(each.id, each.measured)}) for each in read)


@cache
def causes() -> dict[str, KnownCause]:
    """By id, in the order of the file."""
    text = (files("springtide.diagnosis") / "causes.toml").read_text()
    return {id_: KnownCause.model_validate({"id": id_, **entry}) for id_, entry in tomllib.loads(text).items()}
