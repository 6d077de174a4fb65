"""Distributions of a workload's numbers, drawn by quantile so that draws can be correlated.

A draw is `quantile(u)` of a uniform number. Correlated numbers come from correlated `u` (a Gaussian copula): members of
a group share a part of it, whatever the distribution.
"""

import math
from bisect import bisect_right
from functools import lru_cache
from statistics import NormalDist
from typing import Annotated, Literal

from pydantic import Field, model_validator

from springtide.scheduling.config import StrictModel

_NORMAL = NormalDist()
_EPS = 1e-12
_HALVINGS = 60
_POINTS = 1024

SHAPE_MAX = 20.0
"""Beyond it, log-normal draws leave what a number can hold."""


Finite = Annotated[float, Field(allow_inf_nan=False)]


class Bounded(StrictModel):
    """Draws below `low` or above `high` are moved to the bound, as a timeout or a cap does."""

    low: float = Field(0.0, ge=0, allow_inf_nan=False)
    high: float = Field(math.inf, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> "Bounded":
        if not self.low <= self.high:
            raise ValueError(f"low = {self.low:g} is above high = {self.high:g}")
        return self

    def quantile(self, u: float) -> float:
        """The number below which a share `u` of the draws falls, within the bounds."""
        return min(max(self._inverse(min(max(u, _EPS), 1 - _EPS)), self.low), self.high)

    def _inverse(self, u: float) -> float:
        raise NotImplementedError

    def below(self, value: float) -> float:
        """The share of unbounded draws not above `value`."""
        raise NotImplementedError


class Constant(Bounded):
    type: Literal["constant"]
    value: Finite

    def _inverse(self, u: float) -> float:
        return self.value

    def below(self, value: float) -> float:
        return float(value >= self.value)


class Uniform(Bounded):
    """Between `start` and `stop`."""

    type: Literal["uniform"]
    start: Finite
    stop: Finite

    def _inverse(self, u: float) -> float:
        return self.start + u * (self.stop - self.start)

    def below(self, value: float) -> float:
        if self.stop == self.start:
            return float(value >= self.start)
        return min(max((value - self.start) / (self.stop - self.start), 0.0), 1.0)


class Normal(Bounded):
    type: Literal["normal"]
    mean: Finite
    deviation: float = Field(gt=0, allow_inf_nan=False)

    def _inverse(self, u: float) -> float:
        return self.mean + self.deviation * _NORMAL.inv_cdf(u)

    def below(self, value: float) -> float:
        return _NORMAL.cdf((value - self.mean) / self.deviation)


class LogNormal(Bounded):
    """`shape` is the standard deviation of the logarithm."""

    type: Literal["log_normal"]
    median: float = Field(gt=0, allow_inf_nan=False)
    shape: float = Field(gt=0, le=SHAPE_MAX)

    def _inverse(self, u: float) -> float:
        return self.median * math.exp(self.shape * _NORMAL.inv_cdf(u))

    def below(self, value: float) -> float:
        return _NORMAL.cdf(math.log(value / self.median) / self.shape) if value > 0 else 0.0


class Geometric(Bounded):
    """`start` plus the number of failures before a success, `mean` of them on average."""

    type: Literal["geometric"]
    start: Finite = 0.0
    mean: float = Field(gt=0, allow_inf_nan=False)

    def _inverse(self, u: float) -> float:
        return self.start + math.ceil(math.log1p(-u) / -math.log1p(1 / self.mean)) - 1

    def below(self, value: float) -> float:
        failures = math.floor(value - self.start)
        return 0.0 if failures < 0 else 1 - (self.mean / (1 + self.mean)) ** (failures + 1)


class Quantiles(Bounded):
    """`values` at equally spaced shares from 0 to 1, with straight lines between them: what was measured, as it was."""

    type: Literal["quantiles"]
    values: tuple[Finite, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _ascending(self) -> "Quantiles":
        if list(self.values) != sorted(self.values):
            raise ValueError("`values` must not descend: the first is the least of the draws, the last the greatest")
        return self

    def _inverse(self, u: float) -> float:
        place = u * (len(self.values) - 1)
        left = min(int(place), len(self.values) - 2)
        return self.values[left] + (place - left) * (self.values[left + 1] - self.values[left])

    def below(self, value: float) -> float:
        right = bisect_right(self.values, value)
        if right in (0, len(self.values)):
            return float(right > 0)
        lower, upper = self.values[right - 1 : right + 1]
        return (right - 1 + (value - lower) / (upper - lower)) / (len(self.values) - 1)


Simple = Annotated[
    Constant | Uniform | Normal | LogNormal | Geometric | Quantiles,
    Field(discriminator="type"),
]


class Mixture(Bounded):
    """One of `parts`, by `weights`."""

    type: Literal["mixture"]
    weights: tuple[float, ...]
    parts: tuple[Simple, ...]

    @model_validator(mode="after")
    def _matched(self) -> "Mixture":
        fitting = len(self.weights) == len(self.parts) and min(self.weights, default=-1.0) >= 0
        if not fitting or not abs(sum(self.weights) - 1) <= 1e-9:
            raise ValueError("`weights` must be one number of at least 0 per part and add up to 1")
        return self

    def _inverse(self, u: float) -> float:
        place = u * _POINTS - 0.5
        if not 0 <= place < _POINTS - 1:
            return self.solve(u)
        table = _table(self)
        left = int(place)
        return table[left] + (place - left) * (table[left + 1] - table[left])

    def solve(self, u: float) -> float:
        """The quantile by bisection."""
        quantiles = [part.quantile(u) for part in self.parts]
        low, high = min(quantiles), max(quantiles)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.below(middle) < u else (low, middle)
        return high

    def below(self, value: float) -> float:
        return sum(weight * _bounded_below(part, value) for weight, part in zip(self.weights, self.parts, strict=True))


@lru_cache(maxsize=64)
def _table(mixture: Mixture) -> tuple[float, ...]:
    """Quantiles to interpolate between: bisection at every draw would dominate a simulation."""
    return tuple(mixture.solve((number + 0.5) / _POINTS) for number in range(_POINTS))


def _bounded_below(part: Bounded, value: float) -> float:
    if value >= part.high:
        return 1.0
    return 0.0 if value < part.low else part.below(value)


Distribution = Annotated[
    Constant | Uniform | Normal | LogNormal | Geometric | Quantiles | Mixture, Field(discriminator="type")
]


def mean(distribution: Bounded, points: int = 4096) -> float:
    """Of the bounded draws, from that many equally likely quantiles."""
    return sum(distribution.quantile((number + 0.5) / points) for number in range(points)) / points
