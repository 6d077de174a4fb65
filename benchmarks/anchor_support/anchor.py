"""An anchor as data: a published setting, its numbers, what is fitted, and how each number is read off a simulation."""

import copy
import tomllib
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from anchor_support.roofline import Hardware, Model, Slow
from anchor_support.roofline import cluster as roofline_cluster
from springtide.scheduling.config import StrictModel
from springtide.simulation.cluster import Cluster
from springtide.simulation.cluster import cluster as preset_cluster
from springtide.simulation.strategy import Strategy
from springtide.simulation.workload import Workload, preset

FOLDER = Path(__file__).resolve().parent.parent / "anchors"

Metric = Literal[
    "step_seconds",
    "goodput",
    "turns_per_minute",
    "hit_rate",
    "trainer_rollout",
    "trainer_reference",
    "trainer_actor",
    "trainer_work",
    "trainer_wait",
]


class Sweep(StrictModel):
    """The value of a strategy's setting with which goodput is highest, on a seed of its own."""

    setting: str
    values: tuple[int | str, ...] = Field(min_length=2)


class Run(StrictModel):
    """One strategy in the anchor's setting, of which workload and hardware may differ in what is named."""

    steps: int = Field(ge=1)
    warm: int = Field(ge=0)
    strategy: dict[str, Any]
    workload: dict[str, Any] = {}
    hardware: dict[str, Any] = {}
    sweep: Sweep | None = None


class Number(StrictModel):
    """A published number, and how it is read: `metric` of `run`, divided by that of `over` if there is one."""

    name: str
    published: float = Field(gt=0)
    run: str
    over: str | None = None
    metric: Metric


class Fit(StrictModel):
    """The one constant, with which the simulation gives `number` as published. `path`: where in the file it is."""

    constant: str
    why: str
    path: str
    number: str
    low: float | None = None
    high: float | None = None
    integer: bool = False


class Carry(StrictModel):
    """A constant that another anchor has fitted."""

    source: str = Field(alias="from")
    path: str


class Presets(StrictModel):
    workload: str
    cluster: str


class Anchor(StrictModel):
    """One file. `scale` turns a simulated unit into the published one."""

    title: str
    source: str
    status: Literal["modelled", "modelled in part", "not modelled"]
    assumptions: tuple[str, ...]
    departures: tuple[str, ...]
    corrections: tuple[str, ...]
    numbers: tuple[Number, ...] = Field(min_length=1)
    workload: dict[str, Any] = {}
    hardware: dict[str, Any] = {}
    preset: Presets | None = None
    model: Model | None = None
    slow: Slow = Slow()
    scale: float = 1.0
    runs: dict[str, Run] = {}
    fit: Fit | None = None
    carry: Carry | None = None

    @model_validator(mode="after")
    def _names(self) -> "Anchor":
        names = [number.name for number in self.numbers]
        if len(set(names)) < len(names):
            raise ValueError("two numbers have one name")
        for number in self.numbers:
            for run in (number.run, number.over):
                if self.status != "not modelled" and run is not None and run not in self.runs:
                    raise ValueError(f"there is no run '{run}'")
        if self.fit is not None and self.fit.number not in names:
            raise ValueError(f"there is no number '{self.fit.number}'")
        return self


class Setting(NamedTuple):
    workload: Workload
    cluster: Cluster
    strategy: Strategy
    steps: int
    warm: int


def files() -> dict[str, dict[str, Any]]:
    """All anchors as they are on disk, by name."""
    return {path.stem: tomllib.loads(path.read_text()) for path in sorted(FOLDER.glob("*.toml"))}


def changed(text: dict[str, Any], path: str, value: float) -> dict[str, Any]:
    """The file with one value replaced."""
    made = copy.deepcopy(text)
    *parents, last = path.split(".")
    place = made
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = value
    return made


def setting(anchor: Anchor, run: Run, **strategy: int | str) -> Setting:
    """What is simulated for `run`, with some settings of its strategy replaced."""
    if anchor.preset is None:
        assert anchor.model is not None, "an anchor has a model or a preset"
        work = Workload.model_validate({**anchor.workload, **run.workload})
        hardware = Hardware.model_validate({**anchor.hardware, **run.hardware})
        hold = roofline_cluster(anchor.model, hardware, anchor.slow)
    else:
        work = preset(anchor.preset.workload).model_copy(update={**anchor.workload, **run.workload})
        hold = preset_cluster(anchor.preset.cluster).model_copy(update={**anchor.hardware, **run.hardware})
    return Setting(work, hold, Strategy.model_validate({**run.strategy, **strategy}), run.steps, run.warm)
