"""What one run logged, in canonical terms: one series per metric, and why there is none where there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from springtide.diagnosis.log import Note

Aggregate = Literal["mean", "last", "min", "max", "sum", "total"]
"""What a value says of its window of train steps; `total`: it is running, since the run began."""


@dataclass(frozen=True, eq=False)
class Series:
    """`steps` increase. `values` may be NaN, which is what the run logged and not what it left out. `key`: the
    framework's name; `window`: train steps that a value covers."""

    name: str
    key: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    aggregate: Aggregate = "mean"
    window: int = 1

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class Unavailable:
    """A metric that is not there. `reason`: why; `turn_on`: the setting, in this framework, that makes it be logged;
    empty where nothing does."""

    metric: str
    reason: str
    turn_on: str = ""


@dataclass(frozen=True)
class Frame:
    """One run. `series` and `unavailable` are by canonical name and have no name in common; a name that is in neither
    is not of this kind of run. Components of the reward are series of their own, `reward/component/NAME`.

    `settings`: by canonical name (settings.toml), as far as known. `rows`: that were read. `unknown`: keys that no
    alias covers.
    """

    source: Path
    framework: str
    series: Mapping[str, Series]
    unavailable: Mapping[str, Unavailable] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0
    notes: tuple[Note, ...] = ()
    error: str | None = None
    checkpoints: tuple[int, ...] = ()
    last_only: bool = False
    samples: tuple[Path, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def first_step(self) -> int | None:
        return min((int(each.steps[0]) for each in self.series.values() if len(each)), default=None)

    @property
    def last_step(self) -> int | None:
        return max((int(each.steps[-1]) for each in self.series.values() if len(each)), default=None)
