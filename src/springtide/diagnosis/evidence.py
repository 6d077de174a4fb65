"""A condition that holds, in words and with its rows."""

import numpy as np

from springtide.diagnosis.condition import Answer
from springtide.diagnosis.examination import Finding
from springtide.diagnosis.verdict import Evidence

ROWS = 6
"""That are shown of a condition, at most."""


def evidence(finding: Finding) -> tuple[Evidence, ...]:
    shown = [_of(answer, index) for answer, index in finding.rows if not answer.condition.context]
    if not finding.lasts:
        said = Evidence(
            metric="", text=f"It no longer held after step {finding.last_held}.", steps=(finding.last_held,)
        )
        shown.append(said)
    return tuple(shown)


def _of(answer: Answer, index: int) -> Evidence:
    condition, track = answer.condition, answer.track
    if track is None:
        return Evidence(metric=condition.setting, text=f"{condition.setting} is {answer.compared[0]:g} in the settings")
    begin = int(answer.since[index])
    rows = slice(max(begin, index - ROWS + 1), index + 1)
    values = track.raw_values if condition.test == "not_finite" else track.values
    baseline = None
    if answer.reference is not None and np.isfinite(answer.reference[index]):
        baseline = float(answer.reference[index])
    return Evidence(
        metric=track.name,
        text=_text(answer, index, baseline),
        steps=tuple(int(step) for step in answer.steps[rows]),
        values=tuple(float(value) for value in values[rows]),
        baseline=baseline,
    )


def _text(answer: Answer, index: int, baseline: float | None) -> str:
    condition = answer.condition
    name, value, limit = condition.metric, float(answer.compared[index]), condition.value
    since = f"since step {int(answer.steps[answer.since[index]])}"
    shown = f"{value:.3g}"
    words = {
        "above": f"{name} is {shown}, above {limit:g}, {since}",
        "below": f"{name} is {shown}, below {limit:g}, {since}",
        "zero": f"{name} is 0 {since}" if limit == 0 else f"{name} is {shown}, within {limit:g} of 0, {since}",
        "constant": f"{name} is {shown} and does not change, {since}",
        "below_peak": f"{name} has lost {value:.0%} of its best, {since}",
        "rising": f"{name} rises: Mann-Kendall z = {value:.1f}",
        "falling": f"{name} falls: Mann-Kendall z = {value:.1f}",
        "flat": f"{name} has no trend: Mann-Kendall z = {value:.1f}",
        "growing": f"{name} grows exponentially: it doubles in {shown} logged values",
        "spike": f"{name} jumps to {shown}, more than {limit:g} times its median before",
        "saw_tooth": f"{name} went down and came back to its top",
        "not_finite": f"{name} is not finite, {since}",
        "at_start_above": f"{name} is {shown} at the start, above {limit:g}",
        "at_start_below": f"{name} is {shown} at the start, below {limit:g}",
        "with": f"{name} moves with {condition.other}: rank correlation {value:.2f}",
        "against": f"{name} moves against {condition.other}: rank correlation {value:.2f}",
        "above_other": f"{name} is {shown}, more than {limit:g} times {condition.other}, {since}",
        "below_other": f"{name} is {shown}, less than {limit:g} times {condition.other}, {since}",
        "zeros_beyond": f"{value:.0%} of the values of {name} are 0, more than {condition.other} makes likely",
        "logged": f"{name} is logged",
    }
    if condition.negate:
        return f"{name} is {shown}; it does not pass: {condition.test.replace('_', ' ')} {limit:g}"
    if condition.test in words:
        return words[condition.test]
    start = baseline or 0.0
    times = (
        f", {value / start:.2g} times what it was at the start ({start:.3g}),"
        if start
        else f", from {start:.3g} at the start,"
    )
    return f"{name} is {shown}{times} {since}"
