"""How many groups will carry no signal: those whose members are all right or all wrong.

A group of G members on a task with pass rate p has no signal with probability p^G + (1 - p)^G. Rates from few attempts
are more extreme than the tasks are: with k of n right the rate is taken to follow Beta(a + k, b + n - k), where a and b
are fitted to all tasks by their moments. The expectations are then exact, by ratios of beta functions.
"""

from collections.abc import Sequence
from math import exp, lgamma

import msgspec
import numpy as np
from numpy.typing import NDArray

from springtide.diagnosis.preflight.base import Base, TaskRate

RESAMPLES = 200
"""Resamples of tasks for the interval."""

FEWEST = 8
"""Tasks below which there is no interval."""

WEAKEST, STRONGEST = 0.1, 1e4
"""Strength of the fitted beta distribution, in attempts."""

Floats = NDArray[np.float64]


class ZeroSignal(msgspec.Struct, frozen=True, kw_only=True):
    """`share` of groups, all right ones and all wrong ones in it; `low` and `high` at 95 % over tasks, where there are
    enough of them."""

    share: float
    all_right: float
    all_wrong: float
    group_size: int
    tasks: int
    low: float | None = None
    high: float | None = None


def predict(base: Base, group_size: int) -> ZeroSignal | None:
    """None where nothing is known of the base model's rates."""
    if base.tasks:
        return _of_tasks(base.tasks, group_size)
    if base.mean is None:
        return None
    if base.spread == 0:
        right, wrong = base.mean**group_size, (1 - base.mean) ** group_size
    else:
        strength = base.mean * (1 - base.mean) / base.spread**2 - 1
        right, wrong = _both(base.mean * strength, (1 - base.mean) * strength, group_size)
    return ZeroSignal(share=right + wrong, all_right=right, all_wrong=wrong, group_size=group_size, tasks=0)


def smallest_group(base: Base, target: float, *, most: int = 64) -> int | None:
    """The smallest group size with no more than `target` of groups without a signal; None up to `most`."""
    for size in (2, 4, 8, 16, 32, 64):
        if size <= most and (found := predict(base, size)) is not None and found.share <= target:
            return size
    return None


def _of_tasks(tasks: Sequence[TaskRate], group_size: int) -> ZeroSignal:
    kinds, kind_of = _kinds(tasks)
    right, wrong = _expected(kinds, np.bincount(kind_of, minlength=len(kinds)), group_size)
    low = high = None
    if len(tasks) >= FEWEST:
        picked = np.random.default_rng(0).integers(len(tasks), size=(RESAMPLES, len(tasks)))
        counts = [np.bincount(kind_of[row], minlength=len(kinds)) for row in picked]
        shares = [sum(_expected(kinds, count, group_size)) for count in counts]
        low, high = (float(value) for value in np.quantile(shares, [0.025, 0.975]))
    return ZeroSignal(
        share=right + wrong,
        all_right=right,
        all_wrong=wrong,
        group_size=group_size,
        tasks=len(tasks),
        low=low,
        high=high,
    )


def _kinds(tasks: Sequence[TaskRate]) -> tuple[list[TaskRate], NDArray[np.int64]]:
    """The different results that tasks had, and which of them each has."""
    numbers: dict[TaskRate, int] = {}
    kind_of = np.array([numbers.setdefault(task, len(numbers)) for task in tasks], dtype=np.int64)
    return list(numbers), kind_of


def _expected(kinds: Sequence[TaskRate], counts: NDArray[np.int64], group_size: int) -> tuple[float, float]:
    """Shares of groups that are all right, and all wrong, where each kind of task is there so many times."""
    alpha, beta = _fitted(kinds, counts)
    both = np.array([_of_task(task, alpha, beta, group_size) for task in kinds])
    right, wrong = (float(value) for value in counts @ both / counts.sum())
    return right, wrong


def _of_task(task: TaskRate, alpha: float, beta: float, group_size: int) -> tuple[float, float]:
    if task.n is None:
        return task.rate**group_size, (1 - task.rate) ** group_size
    return _both(alpha + task.k, beta + task.n - task.k, group_size)


def _both(alpha: float, beta: float, group_size: int) -> tuple[float, float]:
    """E[p^G] and E[(1 - p)^G] under Beta(alpha, beta)."""
    total = lgamma(alpha + beta) - lgamma(alpha + beta + group_size)
    return (
        exp(total + lgamma(alpha + group_size) - lgamma(alpha)),
        exp(total + lgamma(beta + group_size) - lgamma(beta)),
    )


def _fitted(kinds: Sequence[TaskRate], counts: NDArray[np.int64]) -> tuple[float, float]:
    """Beta by the method of moments, the binomial noise of each rate taken off the variance between tasks."""
    counted = [index for index, task in enumerate(kinds) if task.n is not None and counts[index]]
    if not counted:
        return 1.0, 1.0
    rates: Floats = np.array([kinds[index].rate for index in counted])
    tries: Floats = np.array([float(kinds[index].n or 1) for index in counted])
    times = counts[counted]
    mean = float(np.clip(np.average(rates, weights=tries * times), 1e-3, 1 - 1e-3))
    inverse = float(np.average(1 / tries, weights=times))
    variance = float(np.average((rates - mean) ** 2, weights=times))
    full = mean * (1 - mean)
    between = (variance - full * inverse) / (1 - inverse) if inverse < 1 else 0.0
    strength = full / between - 1 if between > 0 else STRONGEST
    strength = float(np.clip(strength, WEAKEST, STRONGEST))
    return mean * strength, (1 - mean) * strength
