"""Simulates an anchor: its constant is fitted on one seed, its numbers are read over others."""

import statistics
from collections.abc import Sequence
from math import exp, log
from typing import Any

from anchor_support.anchor import Anchor, Metric, Number, Setting, changed, setting
from springtide.simulation.distribution import mean
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.simulate import simulate

TUNING_SEED = 1000
BAR = 0.2
"""By how much a simulated number may differ from the published one."""
ROUNDS = 6
CLOSE = 0.01
"""Of the published number: a fit that is so close is done."""


class Measurement:
    """One anchor. `numbers` is what the result file has of it."""

    def __init__(self, name: str, text: dict[str, Any], *, seeds: Sequence[int], rounds: int = ROUNDS) -> None:
        self._name = name
        self._text = text
        self._seeds = seeds
        self._rounds = rounds
        self._anchor = Anchor.model_validate(text)
        self._swept: dict[str, dict[str, float]] = {}
        self._choices: dict[str, dict[str, int | str]] = {}
        self._played: dict[tuple[str, int], Outcomes] = {}
        self.fitted: dict[str, float] | None = None

    def numbers(self) -> dict[str, Any]:
        self._sweep()
        self._fit()
        return {
            "title": self._anchor.title,
            "source": self._anchor.source,
            "status": self._anchor.status,
            "fitted": self.fitted,
            "swept": self._swept,
            "chosen": self._choices,
            "assumptions": self._anchor.assumptions,
            "departures": self._anchor.departures,
            "corrections": self._anchor.corrections,
            "numbers": [self._row(number) for number in self._anchor.numbers],
            "runs": {name: self._summary(name) for name in self._anchor.runs},
        }

    def _row(self, number: Number) -> dict[str, Any]:
        values = [self._value(self._anchor, number, seed) for seed in self._seeds]
        simulated = statistics.median(values)
        ratio = simulated / number.published
        fit = self._anchor.fit
        return {
            "anchor": self._name,
            "name": number.name,
            "published": number.published,
            "simulated": simulated,
            "low": min(values),
            "high": max(values),
            "fitted": self.fitted,
            "within": ratio,
            "predicted": fit is None or fit.number != number.name,
            "reproduced": abs(ratio - 1) <= BAR,
        }

    def _summary(self, name: str) -> dict[str, list[float]]:
        """Of each seed, what helps to see why a number is what it is."""
        done = [self._play(self._anchor, name, seed) for seed in self._seeds]
        return {
            "step_seconds": [read(one, what, "step_seconds") for one, what in done],
            "goodput": [one.goodput for one, _ in done],
            "hit_rate": [read(one, what, "hit_rate") for one, what in done],
            "trainer_wait": [read(one, what, "trainer_wait") for one, what in done],
            "splits": [statistics.fmean(one.splits) for one, _ in done],
        }

    # -- the constant ------------------------------------------------------------------------------------------------

    def _fit(self) -> None:
        """On a seed of its own; numbers are monotone in their constants."""
        fit = self._anchor.fit
        if fit is None:
            return
        number = next(number for number in self._anchor.numbers if number.name == fit.number)
        if fit.low is None or fit.high is None:
            value = number.published / self._value(self._anchor, number, TUNING_SEED)
        else:
            value = self._solve(number, fit.low, fit.high)
        self._text = changed(self._text, fit.path, int(value) if fit.integer else value)
        self._anchor = Anchor.model_validate(self._text)
        self.fitted = {fit.constant: value}

    def _solve(self, number: Number, low: float, high: float) -> float:
        """Regula falsi (Illinois) in logarithms: most numbers are about a power of their constant."""
        fit = self._anchor.fit
        assert fit is not None
        seen: dict[float, float] = {}

        def off(value: float) -> float:
            """Logarithm of simulated over published."""
            if value not in seen:
                made = Anchor.model_validate(changed(self._text, fit.path, int(value) if fit.integer else value))
                seen[value] = log(self._value(made, number, TUNING_SEED) / number.published)
            return seen[value]

        ends = [(low, off(low)), (high, off(high))]
        for _ in range(self._rounds if ends[0][1] * ends[1][1] < 0 else 0):
            (left, below), (right, above) = ends
            middle = exp((log(left) * above - log(right) * below) / (above - below))
            middle = round(middle) if fit.integer else middle
            if middle in seen or abs(off(middle)) < CLOSE:
                break
            same = off(middle) * above > 0
            ends = [(left, below / 2), (middle, off(middle))] if same else [(middle, off(middle)), (right, above / 2)]
        return min(seen, key=lambda value: abs(seen[value]))

    # -- playing -----------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        for name, run in self._anchor.runs.items():
            if run.sweep is None:
                continue
            tried = {}
            for value in run.sweep.values:
                self._choices[name] = {run.sweep.setting: value}
                outcomes, _ = self._play(self._anchor, name, TUNING_SEED)
                tried[str(value)] = outcomes.goodput
            self._swept[name] = tried
            self._choices[name] = {run.sweep.setting: max(run.sweep.values, key=lambda one: tried[str(one)])}

    def _value(self, anchor: Anchor, number: Number, seed: int) -> float:
        value = anchor.scale * read(*self._play(anchor, number.run, seed), number.metric)
        return value / read(*self._play(anchor, number.over, seed), number.metric) if number.over else value

    def _play(self, anchor: Anchor, name: str, seed: int) -> tuple[Outcomes, Setting]:
        """What was simulated once is not simulated again."""
        what = setting(anchor, anchor.runs[name], **self._choices.get(name, {}))
        key = repr(what), seed
        if key not in self._played:
            self._played[key] = simulate(
                what.workload, what.cluster, what.strategy, seed=seed, steps=what.steps, warm_steps=what.warm
            )
        return self._played[key], what


def read(done: Outcomes, what: Setting, metric: Metric) -> float:
    """`trainer_*` are seconds per step, over the whole run where it is synchronous (no warm-up)."""
    steps = len(done.step_ends)
    bins = done.ledger["trainer"]
    match metric:
        case "step_seconds":
            return done.seconds / (steps - what.warm)
        case "goodput":
            return done.goodput
        case "turns_per_minute":
            return 60 * done.goodput / mean(what.workload.output)
        case "hit_rate":
            stats = done.stats
            return stats.reused / (stats.reused + stats.reprefilled + stats.prefilled)
        case "trainer_work":
            return sum(bins.get(name, 0.0) for name in ("actor", "reference", "swap", "optimizer")) / steps
        case "trainer_wait":
            return _waited(done, what)
        case _:
            return bins.get(metric.removeprefix("trainer_"), 0.0) / steps


def _waited(done: Outcomes, what: Setting) -> float:
    """Seconds per measured step in which the training ranks had nothing to do, of a run whose warm-up is left out: what
    is not work of the trainer, which is the same for every step but for chance."""
    steps = len(done.step_ends)
    seconds = done.seconds / (steps - what.warm)
    return max(0.0, seconds - read(done, what, "trainer_work"))
