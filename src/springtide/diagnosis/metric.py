"""The canonical metrics of a diagnosis: those of our own runs by their names, and others that frameworks log."""

import tomllib
from functools import cache
from importlib.resources import files

from springtide.scheduling.config import StrictModel


class CanonicalMetric(StrictModel):
    """`low` and `high`: what it can be; a value outside is a sign that the key means something else. `better`: the
    direction in which a healthy run moves it, if there is one."""

    unit: str = ""
    meaning: str
    low: float | None = None
    high: float | None = None
    better: str = ""


@cache
def metrics() -> dict[str, CanonicalMetric]:
    """By name; one that ends in `/*` stands for a family."""
    text = (files("springtide.diagnosis") / "metrics.toml").read_text()
    return {name: CanonicalMetric.model_validate(entry) for name, entry in tomllib.loads(text).items()}
