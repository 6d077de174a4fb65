"""S36. Loops that the grader pays as before cost tokens and are no collapse: an answer came before them."""

from springtide.diagnosis.completions.case import Case, percent
from springtide.diagnosis.completions.finding import excerpts, finding, onset, tail
from springtide.diagnosis.completions.repetition import loops, repetition
from springtide.diagnosis.completions.sample import Sample
from springtide.diagnosis.completions.share import rise, share
from springtide.diagnosis.completions.window import mean_reward
from springtide.diagnosis.verdict import Symptom, Verdict

WATCHED = 0.01
SICK = 0.1
GREW = 0.05
MOST = 0.5
"""Shares of looping completions: lower bounds, and an estimate that is ill at any beginning."""

KEPT = 0.8
"""Part of the early reward from which on the grader pays as before."""


def check(case: Case) -> Symptom:
    early, late = case.window.early, case.window.late
    holds = case.remembered(loops)
    now, before = share(late, holds), share(early, holds)
    if now is None:
        return finding("S36", Verdict.UNAVAILABLE, framework=case.framework)
    text = f"{percent(now)} of completions loop"
    text += f", {percent(before)} at the beginning." if before is not None else "."
    evidence = [case.evidence("completion/repetition", text, now, baseline=before)]
    grown = rise(early, late, holds)
    if now.low > SICK and (now.estimate > MOST or (grown is not None and grown.low > GREW)):
        verdict = Verdict.WATCH if _paid(case) else Verdict.SICK
    else:
        verdict = Verdict.WATCH if now.low > WATCHED and (grown is None or grown.low > 0) else Verdict.OK
    return finding(
        "S36",
        verdict,
        framework=case.framework,
        evidence=evidence,
        onset=onset(case.samples, holds, before=before.estimate, after=now.estimate) if before is not None else None,
        rows=excerpts(late, holds, _tell),
    )


def _paid(case: Case) -> bool:
    """Whether completions that loop earn what completions earned at the beginning."""
    looping = mean_reward([sample for sample in case.window.late if case.remembered(loops)(sample)])
    start = mean_reward(case.window.early)
    return looping is not None and start is not None and start > 0 and looping >= KEPT * start


def _tell(sample: Sample) -> tuple[str, str]:
    found = repetition(sample.text)
    return tail(sample.text), f"compresses {found.factor:.0f} times, longest run {found.run} words"
