"""Several containers of one run become one frame: its console and its `trainer_state.json`, or two loggers of one
trainer.

They lie in one run's folder or below it, are of one framework, and agree: wherever both have a metric at the same
steps, its values are the same but for rounding, and at least one such metric moves. A summary of last values agrees if
several of them do. What agrees in nothing stays apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from springtide.diagnosis.find import run_folder
from springtide.diagnosis.frame import Frame, Series
from springtide.diagnosis.log import Note

ROUNDING = 2e-3
"""Relative and absolute: verl's console has three decimals, transformers' four digits."""

FEWEST = 3
"""Common steps at which the values must agree."""


def join(frames: Iterable[Frame]) -> list[Frame]:
    """In the order in which their first containers came."""
    joined: list[Frame] = []
    for frame in frames:
        if not _may_have_a_twin(frame):
            joined.append(frame)
            continue
        twin = next((place for place, other in enumerate(joined) if _one_run(other, frame)), None)
        if twin is None:
            joined.append(frame)
        else:
            joined[twin] = _both(joined[twin], frame)
    return joined


def _may_have_a_twin(frame: Frame) -> bool:
    """Whether it has enough to agree in; a folder may hold thousands that have not."""
    return frame.last_only or any(len(series) >= FEWEST for series in frame.series.values())


def _one_run(one: Frame, other: Frame) -> bool:
    if one.framework != other.framework or not _together(one, other):
        return False
    shared = one.series.keys() & other.series.keys()
    if one.last_only or other.last_only:
        return _same_ends([(one.series[name], other.series[name]) for name in shared])
    moving = 0
    for name in shared:
        agreement = _agreement(one.series[name], other.series[name])
        if agreement is False:
            return False
        moving += agreement is True
    return moving > 0


def _together(one: Frame, other: Frame) -> bool:
    left, right = run_folder(one.source), run_folder(other.source)
    return left.is_relative_to(right) or right.is_relative_to(left)


def _same_ends(pairs: Sequence[tuple[Series, Series]]) -> bool:
    """Whether values at common steps are the same, of several metrics that are not 0."""
    same = told = 0
    for one, other in pairs:
        _, here, there = np.intersect1d(one.steps, other.steps, return_indices=True)
        for left, right in zip(one.values[here], other.values[there], strict=True):
            if left or right:
                told += 1
                same += bool(np.isclose(left, right, rtol=ROUNDING, atol=ROUNDING, equal_nan=True))
    return told >= FEWEST and same >= 0.9 * told


def _agreement(one: Series, other: Series) -> bool | None:
    """None if there are too few common steps to say, or nothing moves there."""
    _, here, there = np.intersect1d(one.steps, other.steps, return_indices=True)
    if len(here) < FEWEST:
        return None
    left, right = one.values[here], other.values[there]
    with np.errstate(invalid="ignore"):
        same = np.isclose(left, right, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
    if same.mean() < 0.9:
        return False
    finite = left[np.isfinite(left)]
    return True if len(finite) and np.ptp(finite) > ROUNDING else None


def _both(one: Frame, other: Frame) -> Frame:
    """The longer frame, completed by the other."""
    main, more = (one, other) if _values(one) >= _values(other) else (other, one)
    series = {**more.series, **main.series}
    return replace(
        main,
        series=series,
        unavailable={name: missing for name, missing in main.unavailable.items() if name not in series},
        settings={**more.settings, **main.settings},
        notes=(*main.notes, Note(text=f"Also from {more.source.name}."), *more.notes),
        error=main.error or more.error,
        checkpoints=tuple(sorted({*main.checkpoints, *more.checkpoints})),
        last_only=main.last_only and more.last_only,
        samples=tuple(dict.fromkeys((*main.samples, *more.samples))),
        unknown=tuple(sorted({*main.unknown, *more.unknown})),
    )


def _values(frame: Frame) -> int:
    return sum(len(each) for each in frame.series.values())
