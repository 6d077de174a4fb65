"""A workload whose distributions are those of a trace, to ask what if: longer contexts, slower environments.

Prompts, numbers of turns, outputs and latencies are drawn independently of each other, and alike at every turn; what
that leaves out stands in the comments of the file. A distribution is of a known family where one is close, else the
quantiles are kept as they were measured.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, pstdev
from typing import Any

from springtide.simulation.distribution import (
    SHAPE_MAX,
    Bounded,
    Constant,
    Distribution,
    Geometric,
    LogNormal,
    Normal,
    Quantiles,
    Uniform,
    mean,
)
from springtide.simulation.traces.recorded import Recorded
from springtide.simulation.traces.trace import Episode
from springtide.simulation.workload import Workload

CLOSE = 0.05
"""Kolmogorov distance up to which a family is taken for the measured distribution, or CHANCE / sqrt(n) if that is more:
a sample of the family itself is farther away in one case of twenty."""

CHANCE = 1.36

CLOSE_MEAN = 0.02
"""Relative; totals are what a simulation depends on most."""

POINTS = 33
"""Measured quantiles that are kept."""

GRID = 1000
"""Draws at most that a distance is taken over."""

DIGITS = 4

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Fit:
    """`comments` say of each setting where its value is from."""

    workload: Workload
    comments: dict[str, str]
    notes: tuple[str, ...]


def fit(work: Recorded, assumptions: Sequence[str]) -> Fit:
    """To all episodes of a trace; `assumptions` are those under which it is played."""
    episodes = list(work.trace.episodes())
    valid = [episode for episode in episodes if not episode.failed]
    shared = work.trace.shared
    samples: dict[str, list[float]] = {
        "task": [max(0, prompt - shared) for prompt in _prompts(work)],
        "turns": [len(episode.turns) for episode in valid],
        "append": [max(0, grown) for episode in episodes for grown in growth(episode)],
        "output": [turn.output for episode in episodes for turn in episode.turns],
        "latency": [turn.latency for episode in valid for turn in episode.turns],
        "reset": [episode.reset for episode in episodes],
        "grade": [episode.grade for episode in valid],
        "failure_seconds": [episode.turns[-1].latency for episode in episodes if episode.failed],
    }
    fitted = {name: fitted_to(values) for name, values in samples.items()}
    shares = _shares(work)
    values: dict[str, Any] = {name: distribution for name, (distribution, _) in fitted.items()}
    comments = {name: f"{comment}; {len(samples[name]):,} measured" for name, (_, comment) in fitted.items()}
    for name, share in shares.items():
        values[f"{name}_shared"] = share
        known = "measured: the share of the variance that is between groups"
        comments[f"{name}_shared"] = known if work.trace.sizes else "assumption: the trace has no groups"
    failed = len(episodes) - len(valid)
    comments |= {
        "system": "measured: leading tokens that all episodes begin with",
        "context": "measured: the most at a turn; an episode ends there",
        "failure": f"measured: {failed:,} of {len(episodes):,} attempts",
        "group_size": "as the trace is played",
        "groups_per_step": "as the trace is played",
    }
    workload = Workload(
        name=f"{work.name}, fitted",
        about=f"fitted to a trace: {work.about}",
        system=shared,
        context=work.longest,
        failure=round(failed / len(episodes), DIGITS),
        group_size=work.group_size,
        groups_per_step=work.groups_per_step,
        **values,
    )
    return Fit(workload, comments, (*_left_out(work, samples), *assumptions))


def _prompts(work: Recorded) -> list[int]:
    """One per recorded group; one per episode where there are none."""
    slots = [work.trace.slots[begin] for begin in work.trace.begins] if work.trace.sizes else work.trace.slots
    return [slot[0].turns[0].context for slot in slots]


def growth(episode: Episode) -> list[int]:
    """Tokens that each turn but the first has beyond the context and the output before it; below 0 if it has fewer."""
    pairs = zip(episode.turns, episode.turns[1:], strict=False)
    return [after.context - before.context - before.output for before, after in pairs]


def _left_out(work: Recorded, samples: dict[str, list[float]]) -> list[str]:
    told = [
        "Assumption: prompts, turns, outputs and latencies are independent, and alike at every turn of an episode.",
        "Assumption: members of a group share all of the prompt."
        + ("" if work.trace.sizes else " In the trace they are different sessions."),
    ]
    lost = [grown for episode in work.trace.episodes() for grown in growth(episode) if grown < 0]
    if lost:
        told.append(
            f"Assumption: contexts only grow. In the trace {len(lost):,} of {len(samples['append']):,} turns have fewer"
            f" tokens than the context and the output before them, {-fmean(lost):,.0f} fewer on average."
        )
    return told


def _shares(work: Recorded) -> dict[str, float]:
    """Of the variance of normal scores, between groups."""
    measures: dict[str, Callable[[Episode], Iterable[float]]] = {
        "turns": lambda episode: [len(episode.turns)],
        "output": lambda episode: [turn.output for turn in episode.turns],
        "latency": lambda episode: [turn.latency for turn in episode.turns],
    }
    trace = work.trace
    groups = [trace.slots[begin : begin + size] for begin, size in zip(trace.begins, trace.sizes, strict=False)]
    found = {}
    for name, measure in measures.items():
        values = [[x for slot in group for e in slot if not e.failed for x in measure(e)] for group in groups]
        found[name] = round(between(values), 3)
    return found


def between(groups: Sequence[Sequence[float]]) -> float:
    """Share of the variance of normal scores that is between groups, 0..1: the one-way analysis of variance's estimate
    of the intraclass correlation for groups of unequal size."""
    groups = _scores([group for group in groups if group])
    total, count = sum(map(len, groups)), len(groups)
    if count < 2 or total == count:
        return 0.0
    centre = sum(map(sum, groups)) / total
    across = sum(len(group) * (fmean(group) - centre) ** 2 for group in groups) / (count - 1)
    within = sum((x - fmean(group)) ** 2 for group in groups for x in group) / (total - count)
    size = (total - sum(len(group) ** 2 for group in groups) / total) / (count - 1)
    spread = across + (size - 1) * within
    return min(max((across - within) / spread, 0.0), 1.0) if spread > 0 else 0.0


def _scores(groups: Sequence[Sequence[float]]) -> list[list[float]]:
    """Values by their normal scores: equal values have equal ones."""
    ordered = sorted(x for group in groups for x in group)
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for rank, x in enumerate(ordered):
        first.setdefault(x, rank)
        last[x] = rank
    score = {x: _NORMAL.inv_cdf(((first[x] + last[x]) / 2 + 0.5) / len(ordered)) for x in first}
    return [[score[x] for x in group] for group in groups]


def fitted_to(values: Sequence[float]) -> tuple[Distribution, str]:
    """The distribution, and where it is from."""
    if not values:
        return Constant(type="constant", value=0.0), "assumption: nothing of it in the trace"
    ordered = sorted(values)
    if ordered[0] == ordered[-1]:
        return Constant(type="constant", value=ordered[0]), "measured: always the same"
    wanted = fmean(ordered)
    best: tuple[float, Distribution] | None = None
    for candidate in _families(ordered):
        apart = distance(candidate, ordered)
        near = (
            apart <= max(CLOSE, CHANCE / len(ordered) ** 0.5) and abs(mean(candidate) - wanted) <= CLOSE_MEAN * wanted
        )
        if near and (best is None or apart < best[0]):
            best = apart, candidate
    if best is not None:
        return best[1], f"fitted: Kolmogorov distance {best[0]:.3f}"
    return quantiles(ordered), "measured: quantiles, no family was close"


def _families(ordered: list[float]) -> list[Distribution]:
    low, high = ordered[0], ordered[-1]
    average, spread = fmean(ordered), pstdev(ordered)
    bounds = {"low": _rounded(low), "high": _rounded(high)}
    found: list[Distribution] = [
        Uniform(type="uniform", start=_rounded(low), stop=_rounded(high)),
        Normal(type="normal", mean=_rounded(average), deviation=_rounded(spread), **bounds),
    ]
    if low > 0:
        logs = [math.log(x) for x in ordered]
        shape = pstdev(logs)
        if 0 < shape < SHAPE_MAX:
            median = math.exp(fmean(logs))
            found.append(LogNormal(type="log_normal", median=_rounded(median), shape=_rounded(shape), **bounds))
    if all(x == int(x) for x in ordered):
        found.append(Geometric(type="geometric", start=low, mean=_rounded(average - low), **bounds))
    return found


def quantiles(ordered: Sequence[float]) -> Quantiles:
    """The measured ones. The last is not the greatest value but the one with which the mean of the uppermost stretch is
    right: a straight line to the end of a tail would lie far above it."""
    last = len(ordered) - 1
    at = [n / (POINTS - 1) * last for n in range(POINTS)]
    values = [ordered[int(p)] + (p - int(p)) * (ordered[min(int(p) + 1, last)] - ordered[int(p)]) for p in at]
    above = ordered[math.ceil(at[-2]) :]
    values[-1] = max(values[-2], 2 * fmean(above) - values[-2])
    return Quantiles(type="quantiles", values=tuple(_rounded(value) for value in values), high=_rounded(ordered[-1]))


def distance(distribution: Bounded, ordered: Sequence[float]) -> float:
    """Largest difference of the two distribution functions, at up to `GRID` of the values."""
    steps = min(GRID, len(ordered))
    places = [round(n * (len(ordered) - 1) / max(1, steps - 1)) for n in range(steps)]
    worst = 0.0
    for place in places:
        x = ordered[place]
        upto = distribution.below(x) if x < distribution.high else 1.0
        before = distribution.below(math.nextafter(x, -math.inf)) if x > distribution.low else 0.0
        worst = max(worst, _gap(ordered, x, upto, before))
    return worst


def _gap(ordered: Sequence[float], x: float, upto: float, before: float) -> float:
    count = len(ordered)
    return max(abs(bisect_right(ordered, x) / count - upto), abs(bisect_left(ordered, x) / count - before))


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
