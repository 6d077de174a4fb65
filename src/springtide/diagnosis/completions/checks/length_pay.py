"""S13. A reward of all or nothing goes with length where success takes long, so that it never makes a run SICK here."""

from collections.abc import Sequence

from springtide.diagnosis.completions.case import Case
from springtide.diagnosis.completions.finding import by_step, excerpts, finding, head
from springtide.diagnosis.completions.length import length_reward, mean_length
from springtide.diagnosis.completions.sample import Sample, groups
from springtide.diagnosis.verdict import Symptom, Verdict

WATCHED = 0.25
SICK = 0.6
"""Lower bounds of the correlation; RLDK warns at .25 and fails at .40, without an interval."""

GREW = 1.25
"""Factor by which length grew."""

CAPPED = 0.5
"""Share of truncated completions from which length can grow no more."""

GRADED = 5
"""Different rewards from which a reward is more than all or nothing."""


def check(case: Case) -> Symptom:
    early, late = case.window.early, case.window.late
    if all(sample.reward is None for sample in case.samples):
        return finding("S13", Verdict.UNAVAILABLE, framework=case.framework)
    now, before = length_reward(late), length_reward(early)
    if now is None:
        return finding("S13", Verdict.INSUFFICIENT, framework=case.framework)
    length, length_before = mean_length(late), mean_length(early)
    unit = "tokens" if all(sample.tokens is not None for sample in case.samples) else "characters"
    text = f"Within groups reward and length correlate by {now.estimate:+.2f} ({now.low:+.2f} to {now.high:+.2f})"
    if before is not None:
        text += f", by {before.estimate:+.2f} at the beginning"
    evidence = [
        case.evidence("completion/length_reward", text + ".", now, baseline=before),
        case.evidence(
            "completion/length",
            f"Mean length {length or 0:,.0f} {unit}"
            + (f", {length_before:,.0f} at the beginning." if length_before is not None else "."),
            length,
            baseline=length_before,
        ),
    ]
    graded = len({sample.reward for sample in late}) >= GRADED
    grew = bool(length and length_before and length > GREW * length_before)
    capped = sum(bool(sample.truncated) for sample in late) > CAPPED * len(late)
    if graded and now.low > SICK and (grew or capped):
        verdict = Verdict.SICK
    else:
        verdict = Verdict.WATCH if now.low > WATCHED else Verdict.OK
    longest = _longest(late)
    return finding(
        "S13",
        verdict,
        framework=case.framework,
        evidence=evidence,
        onset=_onset(case.samples, GREW * length_before) if grew and length_before else None,
        rows=excerpts(late, lambda sample: id(sample) in longest, lambda sample: (head(sample.text), _why(sample))),
    )


def _longest(samples: tuple[Sample, ...]) -> set[int]:
    """Of each group the longest of the best paid."""
    found = set()
    for members in groups(sample for sample in samples if sample.reward is not None):
        best = max(members, key=lambda sample: (sample.reward or 0.0, sample.length))
        found.add(id(best))
    return found


def _why(sample: Sample) -> str:
    return f"the best paid of its group, length {sample.length:,}"


def _onset(samples: Sequence[Sample], level: float) -> int | None:
    """The step from which on mean length stays above `level`."""
    first = None
    for step, members in reversed(by_step(samples).items()):
        if (mean_length(members) or 0.0) <= level:
            break
        first = step
    return first
