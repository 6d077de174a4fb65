"""Which key of which framework is which canonical metric: tables in `aliases/`, one per framework.

A key may have changed its name, or its meaning, from one version to the next; both are in the table. What a framework
does not log unless it is told to is there too, with the setting that turns it on.
"""

import tomllib
from functools import cache
from importlib.resources import files

from pydantic import Field

from springtide.diagnosis.frame import Aggregate
from springtide.scheduling.config import StrictModel


class Alias(StrictModel):
    """A metric as this framework logs it. The first of `keys` that a run has counts; `*` in one stands for a name that
    goes into the canonical one (`rewards/*/mean`)."""

    keys: tuple[str, ...]
    aggregate: Aggregate = "mean"
    scale: float = Field(1.0, description="Factor from the framework's unit to the canonical one.")
    scales: dict[str, float] = Field({}, description="Factors of keys that have another than that.")
    offset: float = Field(0.0, description="Added after scaling: 1 with a scale of -1 makes a share of its complement.")
    less: tuple[str, ...] = Field((), description="Keys whose values are taken off first.")
    over: tuple[str, ...] = Field((), description="Keys by whose sum the value is divided first.")
    moves: bool = Field(
        False, description="A series that never moves is another version's, which computes no such thing."
    )
    lag: bool = Field(False, description="The value is a step; the metric is how far the row's step is ahead of it.")
    turn_on: str = ""
    since: str = Field("", description="Version or date from which on the framework logs it.")
    note: str = Field("", description="What else the key may mean, and in which versions.")


class AliasTable(StrictModel):
    """`signature`: keys, or beginnings of keys that end in `/`, by which rows of this framework are known. `prefixes`:
    what loggers put before its keys, `suffixes`: behind them. `step`: keys that hold the step. `averages`: a value is
    a mean over the steps since the one before it. `traces`: text by which a console without any numbers is known.
    `ignored`: keys, with `*`, that say nothing of a run's health. `never`: metrics that it has no key for, and what to
    do instead. `settings`: canonical name of a setting (settings.toml) to the framework's own, or several, the first
    that is known counts; ` * ` and ` / ` make a product of several."""

    framework: str
    title: str
    signature: tuple[str, ...]
    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    step: tuple[str, ...] = ("step",)
    averages: bool = False
    traces: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    metrics: dict[str, Alias]
    never: dict[str, str] = {}
    settings: dict[str, str | tuple[str, ...]] = {}


@cache
def tables() -> tuple[AliasTable, ...]:
    folder = files("springtide.diagnosis") / "aliases"
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    return tuple(AliasTable.model_validate(tomllib.loads(each.read_text())) for each in found)
