"""S19. Completions that the grader cannot read, and right answers that it pays nothing for."""

from springtide.diagnosis.completions.case import Case, percent
from springtide.diagnosis.completions.finding import excerpts, finding, tail
from springtide.diagnosis.completions.grading import unpaid_though_right, unparsed
from springtide.diagnosis.completions.sample import Sample
from springtide.diagnosis.completions.share import share
from springtide.diagnosis.verdict import Symptom, Verdict
from springtide.evaluation.statistics import Interval

UNREAD = 0.05
NEARLY_ALL = 0.8
RIGHT = 0.04
RIGHT_SICK = 0.3
"""Lower bounds of shares: unread, and right among the lowest paid (two of fifty in an audit by hand are too many)."""


def check(case: Case) -> Symptom:
    late = case.window.late
    unread, right = case.remembered(unparsed), case.remembered(unpaid_though_right(case.samples))
    lost, missed = share(late, unread), share(late, right)
    if lost is None and missed is None:
        return finding("S19", Verdict.UNAVAILABLE, framework=case.framework)
    evidence = []
    if lost is not None:
        text = f"{percent(lost)} of completions could not be read by the grader."
        evidence.append(case.evidence("completion/unparsed", text, lost))
    if missed is not None:
        text = f"{percent(missed)} of the lowest paid give the reference answer."
        evidence.append(case.evidence("completion/unpaid_right", text, missed))
    return finding(
        "S19",
        _verdict(lost, missed),
        framework=case.framework,
        evidence=evidence,
        rows=[
            *excerpts(late, right, lambda sample: (tail(sample.text), _why(sample))),
            *excerpts(late, unread, lambda sample: (tail(sample.text), "not read by the grader")),
        ],
    )


def _verdict(lost: Interval | None, missed: Interval | None) -> Verdict:
    if (missed is not None and missed.low > RIGHT_SICK) or (lost is not None and lost.low > NEARLY_ALL):
        return Verdict.SICK
    if (missed is not None and missed.low > RIGHT) or (lost is not None and lost.low > UNREAD):
        return Verdict.WATCH
    return Verdict.OK


def _why(sample: Sample) -> str:
    return f"reward {sample.reward:g}, and the reference is {sample.truth[:80]}"
