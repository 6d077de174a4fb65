"""What a rule asks of a metric, answered at every value that the run logged.

An answer at a value rests on that value and earlier ones only. A test that looks at single values, or at means of a
few, has to pass `run` times in a row; one that looks back over many (a trend, a correlation) counts at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.diagnosis.facts import (
    Floats,
    Track,
    binned,
    binomial_tail,
    correlation,
    members,
    slope,
    trailing_mean,
    trend,
    without_spikes,
)
from springtide.diagnosis.rule import POINTWISE, Condition

Mask = NDArray[np.bool_]
Found = tuple[Mask, Mask, Floats]
"""Where the test passes, where it could be made, and what was compared."""

SURE = 3.0
"""A level has left that of the start if it is more than as many standard deviations of noise away."""
TREND = 3.0
"""Mann-Kendall's z of a trend, where a rule names none."""
FLAT_POINTS = 30
"""Values that it takes to say that there is no trend."""
RARE = 1e-5
"""Probability below which zeros are no chance: there are many runs, many windows, and groups of a step are alike."""
ALWAYS = np.iinfo(np.int64).min
"""The step of what holds for the run as a whole."""


@dataclass(frozen=True, eq=False)
class Answer:
    """For each of `steps`: whether the condition holds there, and the index from which on it has without a break.
    `compared`: what was compared there; `reference`: what with, for the run's beginning or its best."""

    condition: Condition
    steps: NDArray[np.int64]
    holds: Mask
    since: NDArray[np.int64]
    compared: Floats
    reference: Floats | None = None
    track: Track | None = None


def ask(condition: Condition, tracks: Mapping[str, Track], settings: Mapping[str, Any]) -> Answer | None:
    """None: the metric, or the setting, is not known."""
    if condition.setting:
        return _ask_setting(condition, settings)
    track = tracks.get(condition.metric)
    other = tracks.get(condition.other) if condition.other else None
    if track is None or (condition.other and other is None):
        return None
    if condition.test == "not_finite":
        bad = ~np.isfinite(track.raw_values)
        return _answer(condition, track, track.raw_steps, (bad, np.ones_like(bad), track.raw_values), run=condition.run)
    if not len(track):
        return None
    if condition.test in _AGAINST:
        assert other is not None
        found = _AGAINST[condition.test](condition, track, other)
    else:
        found = _TESTS[condition.test](condition, track)
    run = condition.run if condition.test in POINTWISE else 1
    return _answer(condition, track, track.steps, found, run=run)


def _ask_setting(condition: Condition, settings: Mapping[str, Any]) -> Answer | None:
    if condition.setting not in settings:
        return None
    value = settings[condition.setting]
    if condition.test == "is":
        holds = value in condition.values
    else:
        try:
            number = float(value)
        except (TypeError, ValueError):
            return None
        holds = number > condition.value if condition.test == "above" else number < condition.value
    shown = float(value) if isinstance(value, int | float) else float("nan")
    return Answer(
        condition,
        np.array([ALWAYS]),
        np.array([holds != condition.negate]),
        np.array([0]),
        np.array([shown]),
    )


def _answer(condition: Condition, track: Track, steps: NDArray[np.int64], found: Found, run: int) -> Answer:
    passes, defined, compared = found
    if condition.negate:
        passes = defined & ~passes
    index = np.arange(len(passes))
    broken = np.maximum.accumulate(np.where(passes, -1, index)) if len(index) else index
    since = broken + 1
    holds = passes & (index - since + 1 >= run)
    if condition.within and len(index):
        last = np.maximum.accumulate(np.where(holds, index, -1))
        near = (last >= 0) & (index - last <= condition.within)
        since = np.where(near, since[np.maximum(last, 0)], since)
        holds = near
    reference = None
    if condition.test in ("above_start", "below_start", "above_noise", "below_noise"):
        reference = track.start(condition.start)
    elif condition.test == "below_peak":
        reference = _best(condition, track)
    return Answer(condition, steps, holds, since, compared, reference, track)


def _best(condition: Condition, track: Track) -> Floats:
    means = trailing_mean(without_spikes(track.values), min(2 * condition.smooth, len(track)))
    return np.fmax.accumulate(means)


# -- levels


def _level(sign: int) -> Callable[[Condition, Track], Found]:
    def test(condition: Condition, track: Track) -> Found:
        means = trailing_mean(track.values, condition.smooth)
        return sign * (means - condition.value) > 0, ~np.isnan(means), means

    return test


def _zero(condition: Condition, track: Track) -> Found:
    means = trailing_mean(track.values, condition.smooth)
    return np.abs(means) <= max(condition.value, 1e-30), ~np.isnan(means), means


def _constant(condition: Condition, track: Track) -> Found:
    values = track.values
    passes = np.zeros(len(values), dtype=bool)
    tolerance = max(condition.value, 1e-9) * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    passes[1:] = np.abs(np.diff(values)) <= tolerance
    return passes, np.arange(len(values)) > 0, values


def _at_start(sign: int) -> Callable[[Condition, Track], Found]:
    def test(condition: Condition, track: Track) -> Found:
        first = float(np.median(track.values[: condition.smooth]))
        known = np.arange(len(track)) >= condition.smooth - 1
        return known & (sign * (first - condition.value) > 0), known, np.full(len(track), first)

    return test


def _saw_tooth(condition: Condition, track: Track) -> Found:
    """Back at the top after it was down to half of it."""
    values = track.values
    passes = np.zeros(len(values), dtype=bool)
    if len(values) > 1:
        top = np.maximum.accumulate(values)
        down = np.maximum.accumulate(values <= top / 2)
        passes[1:] = down[:-1] & (top[:-1] > 0) & (values[1:] >= 0.9 * top[:-1]) & (values[:-1] < 0.9 * top[:-1])
    return np.maximum.accumulate(passes), np.ones_like(passes), values


def _logged(condition: Condition, track: Track) -> Found:
    present = np.ones(len(track), dtype=bool)
    return present, present, track.values


# -- against the run's own past


def _left_start(condition: Condition, track: Track) -> tuple[Floats, Floats, Floats, Mask]:
    """Means, the start, the noise of their difference, and where they can be compared."""
    means, start = trailing_mean(track.values, condition.smooth), track.start(condition.start)
    noise = np.hypot(track.noise(condition.smooth), track.noise(condition.start))
    index = np.arange(len(track))
    return means, start, noise, (index >= condition.start) & ~np.isnan(means + start + noise)


def _factor_of_start(sign: int) -> Callable[[Condition, Track], Found]:
    def test(condition: Condition, track: Track) -> Found:
        means, start, noise, defined = _left_start(condition, track)
        sure = sign * (means - start) > SURE * noise
        return defined & sure & (sign * (means - condition.value * start) > 0), defined, means

    return test


def _noise_from_start(sign: int) -> Callable[[Condition, Track], Found]:
    def test(condition: Condition, track: Track) -> Found:
        means, start, noise, defined = _left_start(condition, track)
        return defined & (sign * (means - start) > condition.value * noise), defined, means

    return test


def _below_peak(condition: Condition, track: Track) -> Found:
    passes = np.zeros(len(track), dtype=bool)
    defined = np.zeros(len(track), dtype=bool)
    worst = np.zeros(len(track))
    for share, certain in track.losses(condition.smooth):
        known = ~np.isnan(share + certain) | np.isinf(certain)
        lost = known & (share > 1 - condition.value) & (certain > condition.sure)
        worst = np.where(lost, np.maximum(worst, share), worst)
        passes |= lost
        defined |= known
    return passes, defined, worst


def _spike(condition: Condition, track: Track) -> Found:
    values = track.values
    passes = np.zeros(len(values), dtype=bool)
    for at in range(6, len(values)):
        before = values[max(0, at - 20) : at]
        before = before[before > 0]
        if len(before) < 5 or values[at] <= condition.value * np.median(before):
            continue
        logs = np.log(before)
        spread = 1.4826 * np.median(np.abs(logs - np.median(logs)))
        passes[at] = np.log(values[at]) - np.median(logs) > 5 * spread
    return passes, np.arange(len(values)) >= 6, values


# -- over many values


def _over(track: Track, width: int, least: int) -> list[tuple[int, int]]:
    """From where and up to where to look: all so far at milestones, or the last `width` at every fifth of that."""
    if not width:
        return [(0, int(count)) for count in track.milestones if count >= least]
    counts = [*range(width, len(track) + 1, max(1, width // 5))]
    if len(track) >= width and counts[-1] != len(track):
        counts.append(len(track))
    return [(count - width, count) for count in counts]


def _held(track: Track, spans: list[tuple[int, int]], found: list[tuple[bool, float]]) -> Found:
    """What was found at the end of each span, until the end of the next."""
    passes, defined, shown = np.zeros(len(track), bool), np.zeros(len(track), bool), np.full(len(track), np.nan)
    ends = [end for _, end in spans[1:]] + [len(track) + 1] if spans else []
    for (_, end), until, (passed, value) in zip(spans, ends, found, strict=True):
        passes[end - 1 : until - 1], defined[end - 1 : until - 1], shown[end - 1 : until - 1] = passed, True, value
    return passes, defined, shown


def _trend(sign: int) -> Callable[[Condition, Track], Found]:
    def test(condition: Condition, track: Track) -> Found:
        spans = _over(track, condition.over, 4)
        scores = [trend(track.values[begin:end]) for begin, end in spans]
        least = condition.value or TREND
        return _held(track, spans, [(sign * score > least, score) for score in scores])

    return test


def _flat(condition: Condition, track: Track) -> Found:
    spans, found = _over(track, condition.over, FLAT_POINTS), []
    for begin, end in spans:
        score = trend(track.values[begin:end])
        _, low, high = slope(binned(track.values[begin:end], 100))
        found.append((abs(score) < (condition.value or 2.0) and low <= 0 <= high, score))
    return _held(track, spans, found)


def _growing(condition: Condition, track: Track) -> Found:
    """Exponentially: it doubles in fewer than `value` values."""
    spans, found = _over(track, condition.over or 15, 4), []
    for begin, end in spans:
        values = track.values[begin:end]
        if (values <= 0).any():
            found.append((False, 0.0))
            continue
        logs = np.log(values)
        rate = slope(logs)[0]
        doubling = float(np.log(2) / rate) if rate > 0 else np.inf
        found.append((trend(logs) > TREND and doubling < (condition.value or 10.0), doubling))
    return _held(track, spans, found)


# -- against another metric


def _together(track: Track, other: Track) -> Floats:
    """What `other` was last at each of the track's steps; NaN before it was logged."""
    at = np.searchsorted(other.steps, track.steps, side="right") - 1
    return np.where(at >= 0, other.values[np.maximum(at, 0)], np.nan)


def _other_level(sign: int) -> Callable[[Condition, Track, Track], Found]:
    def test(condition: Condition, track: Track, other: Track) -> Found:
        means = trailing_mean(track.values, condition.smooth)
        theirs = trailing_mean(_together(track, other), condition.smooth)
        return sign * (means - condition.value * theirs) > 0, ~np.isnan(means + theirs), means

    return test


def _moves_with(sign: int) -> Callable[[Condition, Track, Track], Found]:
    def test(condition: Condition, track: Track, other: Track) -> Found:
        theirs, found = _together(track, other), []
        width = min(condition.over or 30, len(track))
        spans = _over(track, width, 12) if width >= 12 else []
        for begin, end in spans:
            known = ~np.isnan(theirs[begin:end])
            number = int(known.sum())
            r = correlation(track.values[begin:end][known], theirs[begin:end][known]) if number >= 12 else 0.0
            found.append((sign * r > condition.value and sign * r * np.sqrt(max(number - 3, 0)) > TREND, r))
        return _held(track, spans, found)

    return test


def _zeros_beyond(condition: Condition, track: Track, other: Track) -> Found:
    """More zeros than `other`, the share of groups that agree, makes likely. All m groups of a step agree with a
    chance of the share to the power of m; since groups of a step are alike it is taken for that of half as many."""
    groups = members(other.raw_values, other.window)
    chances = np.clip(_together(track, other), 0.0, 1.0) ** max(1.0, groups / 2)
    width, found = min(condition.over or 20, len(track)), []
    spans = _over(track, width, 5) if width >= 5 else []
    for begin, end in spans:
        known = ~np.isnan(chances[begin:end])
        zeros = int((np.abs(track.values[begin:end][known]) <= 1e-30).sum())
        chance = binomial_tail(zeros, chances[begin:end][known])
        found.append((zeros >= 3 and chance < RARE, zeros / max(int(known.sum()), 1)))
    return _held(track, spans, found)


_TESTS: dict[str, Callable[[Condition, Track], Found]] = {
    "above": _level(1),
    "below": _level(-1),
    "zero": _zero,
    "constant": _constant,
    "above_start": _factor_of_start(1),
    "below_start": _factor_of_start(-1),
    "above_noise": _noise_from_start(1),
    "below_noise": _noise_from_start(-1),
    "below_peak": _below_peak,
    "at_start_above": _at_start(1),
    "at_start_below": _at_start(-1),
    "saw_tooth": _saw_tooth,
    "spike": _spike,
    "logged": _logged,
    "rising": _trend(1),
    "falling": _trend(-1),
    "flat": _flat,
    "growing": _growing,
}
_AGAINST: dict[str, Callable[[Condition, Track, Track], Found]] = {
    "above_other": _other_level(1),
    "below_other": _other_level(-1),
    "with": _moves_with(1),
    "against": _moves_with(-1),
    "zeros_beyond": _zeros_beyond,
}
