"""What the base model does on the tasks before training: how often it is right, how long it writes, what it is paid.

Given as one rate, as a mean with a spread, as a table with a rate or counts for each task, or as dumped completions.
"""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from springtide.core.errors import UsageError
from springtide.diagnosis.completions.content import first, number
from springtide.diagnosis.completions.lines import Lines
from springtide.diagnosis.completions.read import read_samples
from springtide.diagnosis.completions.sample import Sample, groups

RATE = ("pass_rate", "rate", "p", "pass@1", "accuracy", "solve_rate", "success_rate", "mean_reward")
RIGHT = ("k", "right", "correct", "successes", "passes", "num_correct", "n_correct")
TRIED = ("n", "tried", "attempts", "samples", "total", "num_samples")
LENGTH = ("tokens", "length", "completion_tokens", "mean_length", "response_length")


@dataclass(frozen=True)
class TaskRate:
    """`k` of `n` attempts were right; `n` is None where the rate is taken as it is."""

    rate: float
    n: int | None = None

    @property
    def k(self) -> float:
        return self.rate * (self.n or 0)


@dataclass(frozen=True)
class Base:
    """`spread`: the standard deviation of rates around `mean`, where there are no `tasks`. `lengths`: of completions,
    in tokens. `components`: values of each part of the reward over all completions."""

    tasks: tuple[TaskRate, ...] = ()
    mean: float | None = None
    spread: float = 0.0
    lengths: tuple[float, ...] = ()
    components: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def base_of_rate(text: str) -> Base:
    """`0.3`, or `0.3:0.2` for a mean and a standard deviation over tasks."""
    mean_text, colon, spread_text = text.partition(":")
    mean, spread = number(mean_text), number(spread_text) if colon else 0.0
    if mean is None or spread is None or not 0 <= mean <= 1 or not 0 <= spread**2 < max(mean * (1 - mean), 1e-12):
        raise UsageError(
            f"--pass-rate {text}: write a rate from 0 to 1, such as 0.3, or a mean and a standard deviation over tasks "
            "that a rate can have, such as 0.3:0.2."
        )
    return Base(mean=mean, spread=spread)


def read_base(path: Path, *, success: float = 1.0) -> Base:
    """A table (CSV, JSON, JSON lines) with a row for each task, or dumped completions of the base model.

    `success`: the reward from which a completion is right. UsageError if it is neither.
    """
    if not path.exists():
        raise UsageError(f"--base {path}: there is no such file; give a table of pass rates, or dumped completions.")
    rows = _rows(path)
    tasks = [task for row in rows if (task := _task(row)) is not None]
    if tasks and len(tasks) >= len(rows) / 2:
        lengths = [length for row in rows if (length := number(first(row, LENGTH))) is not None]
        return Base(tasks=tuple(tasks), lengths=tuple(lengths))
    try:
        samples = read_samples(path).samples
    except UsageError:
        raise UsageError(
            f"--base {path}: it has neither a rate for each task (a column {RATE[0]}, or {RIGHT[0]} and {TRIED[0]}) "
            "nor completions with rewards."
        ) from None
    return base_of_samples(samples, success=success)


def base_of_samples(samples: tuple[Sample, ...], *, success: float = 1.0) -> Base:
    tasks = []
    for members in groups(samples):
        rewards = [member.reward for member in members if member.reward is not None]
        if rewards:
            tasks.append(TaskRate(sum(reward >= success for reward in rewards) / len(rewards), len(rewards)))
    components: dict[str, list[float]] = {}
    for sample in samples:
        for name, value in sample.components.items():
            components.setdefault(name, []).append(value)
    counted = all(sample.tokens is not None for sample in samples)
    return Base(
        tasks=tuple(tasks),
        lengths=tuple(float(sample.tokens or 0) for sample in samples) if counted else (),
        components={name: tuple(values) for name, values in components.items() if len(values) >= len(samples) / 2},
        notes=() if counted else ("Completions are not counted in tokens: nothing is said about truncation.",),
    )


def _rows(path: Path) -> list[Mapping[str, Any]]:
    if path.is_dir() or path.suffix == ".parquet":
        return []
    if path.suffix in (".csv", ".tsv"):
        text = path.read_text(encoding="utf-8", errors="replace")
        separator = "\t" if path.suffix == ".tsv" else ","
        try:
            return list(csv.DictReader(io.StringIO(text), delimiter=separator))
        except csv.Error as error:
            raise UsageError(f"--base {path}: this is not a table: {error}.") from None
    return [row for _, row in Lines(path)]


def _task(row: Mapping[str, Any]) -> TaskRate | None:
    rewards = row.get("rewards")
    if isinstance(rewards, list) and rewards and all(number(each) is not None for each in rewards):
        right = sum((number(each) or 0.0) >= 1.0 for each in rewards)
        return TaskRate(right / len(rewards), len(rewards))
    right_, tried = number(first(row, RIGHT)), number(first(row, TRIED))
    if right_ is not None and tried is not None and 0 <= right_ <= tried and tried >= 1:
        return TaskRate(right_ / tried, int(tried))
    rate = number(first(row, RATE))
    if rate is None or not 0 <= rate <= 1:
        return None
    return TaskRate(rate, int(tried) if tried is not None and tried >= 1 else None)
