"""Robust statistics of one series of logged values: its noise, its trend, what it has lost.

Noise is what is left of neighbouring values' differences after their median, so that neither a trend nor a collapse
counts as noise; for means it is taken from means of that width, so that slow wandering does count. All is causal:
what is said of a point uses that point and earlier ones only, and appending values changes nothing that was said
before."""

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_POINTS = 1500
"""A longer series is averaged down to at most as many: nothing that a rule looks for is shorter."""

TREND_POINTS = 200
"""Values that a trend is taken over, at most; more are averaged."""

BLOCKS = 8
"""Means of a width that its noise can be estimated from."""

_MAD = 1.4826
"""From the median absolute deviation of normal values to their standard deviation."""


def noise(values: Floats) -> float:
    """Standard deviation of `values` around a slow course."""
    if len(values) < 3:
        return 0.0
    steps = np.diff(values)
    apart = np.abs(steps - np.median(steps))
    robust = _MAD * float(np.median(apart))
    # The second is for values that are mostly equal (quantised, many zeros); it is less robust, and counts less.
    trimmed = float(np.mean(np.minimum(apart, np.quantile(apart, 0.9)))) * math.sqrt(math.pi / 2)
    return max(robust, 0.7 * trimmed) / math.sqrt(2)


def noise_of_means(values: Floats, width: int) -> float:
    """Standard deviation of means over `width` neighbours: what values that remember their neighbour give for it, or
    the most that means of any smaller width do. Few means may lie close together by chance."""
    found, wide = noise(values) * inflation(kept(values), width), 2
    while wide <= min(width, len(values) // BLOCKS):
        count = len(values) // wide
        means = values[len(values) - count * wide :].reshape(count, wide).mean(axis=1)
        found = max(found, noise(means) * math.sqrt(wide / width))
        wide *= 2
    return found


def kept(values: Floats) -> float:
    """How much of its distance from the course a value keeps until the next, at least: from neighbouring differences,
    which neither a trend nor a collapse makes alike."""
    if len(values) < 12:
        return 0.0
    steps = np.diff(values)
    steps = steps - np.median(steps)
    limit = 3 * _MAD * float(np.median(np.abs(steps)))
    steps = np.clip(steps, -limit, limit)
    power = float(steps @ steps)
    lag = float(steps[1:] @ steps[:-1]) / power if power > 0 else -0.5
    return min(max(1 + 2 * lag - 1 / math.sqrt(len(steps)), 0.0), 0.4)


def inflation(memory: float, width: int) -> float:
    """From the noise of values to that of means over `width`, if each keeps `memory` of the one before."""
    lags = np.arange(1, width)
    together = 1 + 2 * float(((1 - lags / width) * memory**lags).sum())
    return math.sqrt(together / (1 - memory) / width)


def trailing_mean(values: Floats, width: int) -> Floats:
    """NaN where fewer than `width` values are there."""
    if width == 1:
        return values
    means = np.full(len(values), np.nan)
    if len(values) >= width:
        total = np.concatenate(([0.0], np.cumsum(values)))
        means[width - 1 :] = (total[width:] - total[:-width]) / width
    return means


def without_spikes(values: Floats) -> Floats:
    """Of each value and the two before it the one in the middle: a single glitch is nobody's best."""
    if len(values) < 3:
        return values
    middle = np.median(np.lib.stride_tricks.sliding_window_view(values, 3), axis=1)
    return np.concatenate(([min(values[:2])] * 2, middle))


def milestones(count: int) -> NDArray[np.int64]:
    """Numbers of values, ever further apart, at which what is costly is computed anew; always the same ones, and
    `count`."""
    found, at = [], 4.0
    while at < count:
        found.append(int(at))
        at = max(at + 1, at * 1.1)
    return np.array([*found, count], dtype=np.int64)


def binned(values: Floats, most: int) -> Floats:
    if len(values) <= most:
        return values
    width = math.ceil(len(values) / most)
    count = len(values) // width
    means: Floats = values[len(values) - count * width :].reshape(count, width).mean(axis=1)
    return means


def trend(values: Floats) -> float:
    """Mann-Kendall's z, with ties; the variance is inflated by what the residuals' memory costs."""
    values = binned(values, TREND_POINTS)
    n = len(values)
    if n < 4:
        return 0.0
    score = float(np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)].sum())
    ties = np.unique(values, return_counts=True)[1].astype(float)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if variance <= 0:
        return 0.0
    if n >= 10:
        lag = memory(values)
        variance *= (1 + lag) / (1 - lag)
    return (score - math.copysign(1.0, score)) / math.sqrt(variance) if score else 0.0


def memory(values: Floats) -> float:
    """Autocorrelation of neighbours around their local mean, from 0 to 0.9."""
    rest = values - local_mean(values, max(len(values) // 4, 5))
    rest = rest - rest.mean()
    power = float(rest @ rest)
    lag = float(rest[1:] @ rest[:-1]) / power if power > 0 else 0.0
    return min(max(lag, 0.0), 0.9)


def local_mean(values: Floats, width: int) -> Floats:
    """Of `width` values around each, fewer at the ends."""
    kernel = np.ones(width)
    mean: Floats = np.convolve(values, kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same")
    return mean


def slope(values: Floats) -> tuple[float, float, float]:
    """Theil and Sen's slope per value, with the ends of its 95 % interval; of at most `TREND_POINTS` values."""
    n = len(values)
    first, second = np.triu_indices(n, 1)
    slopes = np.sort((values[second] - values[first]) / (second - first))
    if not len(slopes):
        return 0.0, 0.0, 0.0
    spread = 1.96 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(int((len(slopes) - spread) / 2), 0)
    high = min(int((len(slopes) + spread) / 2), len(slopes) - 1)
    return float(np.median(slopes)), float(slopes[low]), float(slopes[high])


def ranks(values: Floats) -> Floats:
    """Ties have their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    mean_rank: Floats = (ends - (counts - 1) / 2)[inverse]
    return mean_rank


def correlation(first: Floats, second: Floats) -> float:
    """Of the ranks of what is left after a mean over neighbours: whether they move together, not whether both trend."""
    width = min(9, len(first) // 2 * 2 - 1)
    if width < 3:
        return 0.0

    def left(values: Floats) -> Floats:
        centred = ranks(values - local_mean(values, width))
        centred -= centred.mean()
        return centred

    a, b = left(first), left(second)
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size > 0 else 0.0


def members(shares: Floats, window: int, most: int = 64) -> int:
    """How many things a share is of, per step, read off its values: means over `window` steps; 1 if they do not say."""
    known = np.unique(shares[np.isfinite(shares)])
    if len(known) < 3:
        return 1
    for count in range(1, most + 1):
        whole = known * count * window
        if np.all(np.abs(whole - np.round(whole)) < 6e-5 * count * window):
            return count
    return 1


def binomial_tail(successes: int, chances: Floats) -> float:
    """Probability of at least as many successes, one trial per chance."""
    spread = np.zeros(len(chances) + 1)
    spread[0] = 1.0
    for chance in chances:
        spread[1:] = spread[1:] * (1 - chance) + spread[:-1] * chance
        spread[0] *= 1 - chance
    return float(spread[successes:].sum())


class Track:
    """The finite values of one metric, made ready for tests."""

    def __init__(
        self, name: str, steps: NDArray[np.int64], values: Floats, aggregate: str = "mean", window: int = 1
    ) -> None:
        self.name, self.window = name, window
        self.raw_steps, self.raw_values = steps, values
        finite = np.isfinite(values)
        steps, values = steps[finite], values[finite]
        width = math.ceil(len(values) / MOST_POINTS)
        if width > 1:
            count = len(values) // width
            steps = steps[: count * width].reshape(count, width)[:, -1]
            cells = values[: count * width].reshape(count, width)
            over = {"max": cells.max, "min": cells.min}.get(aggregate, cells.mean)
            values = cells[:, -1] if aggregate == "total" else over(axis=1)
        self.steps, self.values = steps, np.clip(values, -1e150, 1e150)
        self._starts: dict[int, Floats] = {}
        self._noises: dict[int, Floats] = {}
        self._losses: dict[int, list[tuple[Floats, Floats]]] = {}

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def milestones(self) -> NDArray[np.int64]:
        return milestones(len(self))

    def held_since(self, found: Floats) -> Floats:
        """What was found at milestones, for each value: that of the last milestone; NaN before the first."""
        spread = np.full(len(self), np.nan)
        ends = [*self.milestones[1:], len(self) + 1]
        for value, begin, end in zip(found, self.milestones, ends, strict=True):
            spread[begin - 1 : end - 1] = value
        return spread

    def noise(self, width: int) -> Floats:
        """Noise of means over `width` values as known at each of them."""
        if width not in self._noises:
            found = [noise_of_means(self.values[:count], width) for count in self.milestones]
            self._noises[width] = self.held_since(np.array(found))
        return self._noises[width]

    def start(self, width: int) -> Floats:
        """The run's beginning as known at each value: the median of the first `width`, of four times as many later on;
        NaN before there are `width`."""
        if width not in self._starts:
            found = np.full(len(self), np.nan)
            for count in range(width, len(self) + 1):
                first = min(max(width, count // 10), 4 * width)
                found[count - 1] = np.median(self.values[:first])
                if first == 4 * width:
                    found[count:] = found[count - 1]
                    break
            self._starts[width] = found
        return self._starts[width]

    def losses(self, smooth: int) -> list[tuple[Floats, Floats]]:
        """At several widths from twice `smooth` on: the share of its best that the mean over that many values has
        lost, and that loss in units of noise. A metric that goes below 0 loses shares of its range."""
        if smooth not in self._losses:
            self._losses[smooth] = []
            width = 2 * smooth
            while 2 * width <= max(len(self), 4 * smooth) and width <= MOST_POINTS // 4:
                self._losses[smooth].append(self._lost(width))
                width *= 2
        return self._losses[smooth]

    def _lost(self, width: int) -> tuple[Floats, Floats]:
        means = trailing_mean(self.values, width)
        best = np.full(len(self), np.nan)
        if len(self) > width:
            steady = trailing_mean(without_spikes(self.values), width)
            known = np.where(np.isnan(steady), -np.inf, steady)
            best[width:] = np.maximum.accumulate(known)[:-width]
            best[np.isinf(best)] = np.nan
        lowest = np.minimum(np.fmin.accumulate(means), 0.0)
        scale = np.maximum(best - lowest, np.abs(best))
        noise = self.noise(width) * math.sqrt(2)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (best - means) / scale
            certain = np.where(noise > 0, (best - means) / noise, np.where(best > means, np.inf, 0.0))
        return share, certain
