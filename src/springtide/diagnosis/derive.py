"""What follows from a frame and is not in it: tracks of derived metrics, and facts about the run as settings.

A derived metric is there only where all that it comes from is. The facts: `ended_with_error`, `error_kind`,
`unfinished`, `last_only`, `runs_in_file`."""

import re
from typing import Any

import numpy as np

from springtide.diagnosis.facts import Track
from springtide.diagnosis.frame import Frame, Series

SEVERAL = re.compile(r"holds (\d+) runs")
"""How a reader says that a file holds more than one."""

COLLIDING = 0.7
"""Share of the entropy that says how often two samples are equal; so it is in this project's own runs."""

OUT_OF_MEMORY = ("out of memory", "outofmemory", "oom-kill", "cannot allocate memory", "sigkill", "killed")


def tracks(frame: Frame) -> dict[str, Track]:
    found = {name: _track(series) for name, series in frame.series.items()}
    for name, values in (
        ("completion/cap_share", _cap_share(frame)),
        ("step/seconds_per_token", _seconds_per_token(frame)),
        ("train/importance_distance", _importance_distance(frame)),
        ("train/nll_by_entropy", _ratio(frame, "train/behaviour_nll", "train/entropy")),
        ("completion/unique_by_expected", _unique_by_expected(frame)),
        *_variance_shares(frame),
    ):
        if values is not None and name not in found:
            found[name] = values
    reference = found.get("train/reference_kl")
    if reference is not None and not reference.values.any() and frame.settings.get("kl_coefficient") in (0, "0", "0.0"):
        del found["train/reference_kl"]  # Written as 0 where there is no reference: missing, and not 0.
    return found


def _track(series: Series) -> Track:
    return Track(series.name, series.steps, series.values, series.aggregate, series.window)


def settings(frame: Frame) -> dict[str, Any]:
    facts: dict[str, Any] = {"ended_with_error": frame.error is not None, "last_only": frame.last_only}
    if frame.error is not None:
        text = frame.error.lower()
        facts["error_kind"] = "memory" if any(each in text for each in OUT_OF_MEMORY) else "other"
    together = [found for note in frame.notes if (found := SEVERAL.search(note.text)) is not None]
    if together:
        facts["runs_in_file"] = int(together[0][1])
    total = frame.settings.get("steps")
    if isinstance(total, int | float) and total > 0 and frame.last_step is not None:
        facts["unfinished"] = frame.last_step < 0.9 * total
    return {**frame.settings, **facts}


def _cap_share(frame: Frame) -> Track | None:
    """Against the limit itself, or against the longest completion where some were cut off."""
    length = frame.series.get("completion/length")
    cap = frame.settings.get("max_completion")
    if length is None or not len(length):
        return None
    if not isinstance(cap, int | float) or cap <= 0:
        longest, cut = frame.series.get("completion/length_max"), frame.series.get("completion/truncated")
        if longest is None or cut is None or not (cut.values > 0).any():
            return None
        cap = max((value for value in longest.values.tolist() if np.isfinite(value)), default=0.0)
    return Track("completion/cap_share", length.steps, length.values / cap) if cap > 0 else None


def _seconds_per_token(frame: Frame) -> Track | None:
    seconds = frame.series.get("step/seconds")
    tokens = frame.series.get("step/tokens", frame.series.get("completion/length"))
    if seconds is None or tokens is None:
        return None
    steps, at, their = np.intersect1d(seconds.steps, tokens.steps, return_indices=True)
    time, count = seconds.values[at], tokens.values[their]
    if tokens.aggregate == "total":
        steps, time, count = steps[1:], time[1:], np.diff(count) / np.maximum(np.diff(steps), 1)
    good = count > 0
    return Track("step/seconds_per_token", steps[good], time[good] / count[good]) if good.any() else None


def _ratio(frame: Frame, above: str, below: str) -> Track | None:
    """Of two metrics, where both were logged."""
    first, second = frame.series.get(above), frame.series.get(below)
    if first is None or second is None:
        return None
    steps, at, their = np.intersect1d(first.steps, second.steps, return_indices=True)
    good = second.values[their] > 0
    return Track(above, steps[good], first.values[at][good] / second.values[their][good]) if good.any() else None


def _unique_by_expected(frame: Frame) -> Track | None:
    """Different members of a group, by how many there would be if each were drawn anew: of as many outcomes as the
    entropy of an episode says, less a share, since unequal ones collide more often than equal ones."""
    unique, entropy = frame.series.get("completion/unique"), frame.series.get("train/entropy")
    length, turns = frame.series.get("completion/length"), frame.series.get("rollout/turns")
    size = frame.settings.get("group_size")
    if unique is None or entropy is None or length is None or not isinstance(size, int) or size < 2:
        return None
    steps = np.intersect1d(np.intersect1d(unique.steps, entropy.steps), length.steps)
    if not len(steps):
        return None
    found, nats, tokens = (each.values[np.isin(each.steps, steps)] for each in (unique, entropy, length))
    often = 1.0 if turns is None or not len(turns) else float(np.nanmedian(turns.values))
    outcomes = np.exp(np.minimum(COLLIDING * nats * tokens * often, 50.0))
    expected = outcomes * -np.expm1(size * np.log1p(-1 / np.maximum(outcomes, 1 + 1e-9))) / size
    return Track("completion/unique_by_expected", steps, found / expected)


def _importance_distance(frame: Frame) -> Track | None:
    """Unless what is masked counts as weight 0, which says nothing of drift."""
    mean, least = frame.series.get("train/importance_mean"), frame.series.get("train/importance_min")
    if mean is None or (least is not None and (least.values == 0.0).any()):
        return None
    good = mean.values > 0
    return Track("train/importance_distance", mean.steps[good], np.abs(np.log(mean.values[good])))


def _variance_shares(frame: Frame) -> list[tuple[str, Track]]:
    """Of each component of the reward, where there are several and all are logged at the same steps."""
    parts = {name: each for name, each in frame.series.items() if name.startswith("reward/component_std/")}
    lengths = {len(each) for each in parts.values()}
    if len(parts) < 2 or len(lengths) > 1:
        return []
    variances = {name: each.values**2 for name, each in parts.items()}
    total = np.sum(list(variances.values()), axis=0)
    good = total > 0
    return [
        (
            name.replace("component_std", "variance_share"),
            Track(name, parts[name].steps[good], variances[name][good] / total[good]),
        )
        for name in parts
        if good.any()
    ]
