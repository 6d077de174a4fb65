"""Diagnoses against labels: how much is found, how much is made up, how often the planted cause comes first."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from doctor_support.labels import Label
from springtide.diagnosis.diagnose import diagnose
from springtide.diagnosis.frame import Frame
from springtide.diagnosis.verdict import Diagnosis, Verdict
from springtide.evaluation.statistics import wilson

SMOOTH = 5
"""Steps of the reward that are averaged, to say how much was lost."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`rank`: of the planted cause, from 1; None if it is not named. `lost`: the share of the best reward that was lost
    when the run could first be called SICK."""

    label: Label
    verdict: str
    sick: tuple[str, ...]
    watched: tuple[str, ...]
    causes: tuple[str, ...]
    rank: int | None
    seen: int | None
    lost: float | None

    @property
    def found(self) -> bool:
        return bool({*self.sick, *self.watched} & set(self.label.symptoms))


class Share(NamedTuple):
    hits: int
    of: int

    def told(self) -> dict[str, Any]:
        interval = wilson(self.hits, self.of)
        ends = None if interval is None else [round(interval.low, 3), round(interval.high, 3)]
        return {"hits": self.hits, "of": self.of, "interval": ends}


def examine(label: Label, frames: Sequence[Frame]) -> Outcome:
    """A file with several runs counts by the worst of them."""
    found = [(diagnose(frame), frame) for frame in frames]
    order = [Verdict.SICK, Verdict.WATCH, Verdict.INSUFFICIENT, Verdict.UNAVAILABLE, Verdict.OK]
    diagnosis, frame = min(found, key=lambda each: order.index(each[0].verdict))
    seen = min((each.seen_step for each in diagnosis.symptoms
                if each.verdict is Verdict.SICK and each.seen_step is not None), default=None)  # fmt: skip
    causes = tuple(cause.id for cause in diagnosis.causes)
    return Outcome(
        label=label,
        verdict=diagnosis.verdict,
        sick=_of(diagnosis, Verdict.SICK),
        watched=_of(diagnosis, Verdict.WATCH),
        causes=causes[:5],
        rank=causes.index(label.cause) + 1 if label.cause in causes else None,
        seen=seen,
        lost=None if seen is None else lost(frame, seen),
    )


def _of(diagnosis: Diagnosis, verdict: Verdict) -> tuple[str, ...]:
    return tuple(each.id for each in diagnosis.symptoms if each.verdict is verdict)


def lost(frame: Frame, step: int) -> float | None:
    """Of the best mean reward up to a step; 0 where it has not fallen."""
    rewards = frame.series.get("reward/mean")
    if rewards is None:
        return None
    values = rewards.values[(rewards.steps <= step) & np.isfinite(rewards.values)]
    if len(values) < SMOOTH:
        return 0.0
    means = np.convolve(values, np.ones(SMOOTH) / SMOOTH, "valid")
    best = float(means.max())
    return max(0.0, 1 - float(means[-1]) / best) if best > 0 else 0.0


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Of all logs together. Runs without a planted cause have no say in the causes."""
    labelled = [each for each in outcomes if each.label.symptoms]
    sick = [each for each in outcomes if each.label.verdict == "SICK"]
    healthy = [each for each in outcomes if each.label.healthy]
    planted = [each for each in outcomes if each.label.cause]
    early = [each.lost for each in sick if each.lost is not None]
    return {
        "recall": _share([each.found for each in labelled]),
        "sick_recall": _share([each.verdict == "SICK" for each in sick]),
        "sick_runs": len(sick),
        "false_sick": sum(each.verdict == "SICK" for each in healthy),
        "healthy_runs": len(healthy),
        "first_cause": _share([each.rank == 1 for each in planted]),
        "top3_cause": _share([each.rank is not None and each.rank <= 3 for each in planted]),
        "planted_runs": len(planted),
        "lost_when_seen": statistics.median(early) if early else None,
    }


def _share(hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None


def intervals(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    planted = [each for each in outcomes if each.label.cause]
    labelled = [each for each in outcomes if each.label.symptoms]
    healthy = [each for each in outcomes if each.label.healthy]
    return {
        "recall": Share(sum(each.found for each in labelled), len(labelled)).told(),
        "false_sick": Share(sum(each.verdict == "SICK" for each in healthy), len(healthy)).told(),
        "first_cause": Share(sum(each.rank == 1 for each in planted), len(planted)).told(),
        "top3_cause": Share(sum((each.rank or 99) <= 3 for each in planted), len(planted)).told(),
    }


def by_rule(outcomes: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    """For each symptom: runs labelled with it and those of them where it is found, healthy runs where it is SICK or
    WATCH."""
    healthy = [each for each in outcomes if each.label.healthy]
    labelled = Counter(name for each in outcomes for name in each.label.symptoms)
    found = Counter(name for each in outcomes for name in each.label.symptoms if name in {*each.sick, *each.watched})
    false_sick = Counter(name for each in healthy for name in each.sick)
    watched = Counter(name for each in healthy for name in each.watched if name not in each.label.symptoms)
    names = sorted({*labelled, *false_sick, *watched})
    return {
        name: {"labelled": labelled[name], "found": found[name], "false_sick": false_sick[name],
               "watched": watched[name], "healthy": len(healthy)}
        for name in names
    }  # fmt: skip
