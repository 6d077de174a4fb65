"""S16. Levels say nothing: every policy has its ways. What counts is that openings became alike, and the rest too."""

from springtide.diagnosis.completions.case import Case, percent
from springtide.diagnosis.completions.finding import excerpts, finding, head, onset
from springtide.diagnosis.completions.opening import commonest_opening, opening, similarity
from springtide.diagnosis.completions.sample import Sample
from springtide.diagnosis.completions.share import rise, share
from springtide.diagnosis.verdict import Symptom, Verdict

OPENS = 0.5
GREW = 0.25
"""The commonest opening of the end makes half of it, and a quarter more than at the beginning."""

ALIKE = 0.3
ALIKE_GREW = 2.0
"""Common pieces between completions to different prompts, and by which factor that grew."""


def check(case: Case) -> Symptom:
    early, late = case.window.early, case.window.late
    if not case.written:
        return finding("S16", Verdict.UNAVAILABLE, framework=case.framework)
    text, _ = commonest_opening(late)

    def opens(sample: Sample) -> bool | None:
        return opening(sample) == text if sample.text else None

    holds = case.remembered(opens)
    now, before = share(late, holds), share(early, holds)
    evidence = [
        case.evidence(
            "completion/opening_share",
            f'{percent(now)} of completions open with "{text}", {percent(before)} at the beginning.',
            now,
            baseline=before,
        )
    ]
    grown = rise(early, late, holds)
    if not case.window.comparable or now is None or before is None or grown is None:
        return finding("S16", Verdict.INSUFFICIENT, framework=case.framework, evidence=evidence)
    alike, alike_before = similarity(late), similarity(early)
    same = alike is not None and alike_before is not None and alike > max(ALIKE, ALIKE_GREW * alike_before)
    if alike is not None:
        evidence.append(
            case.evidence(
                "completion/similarity",
                f"Completions to different prompts have {alike:.0%} of their pieces in common"
                + (f", {alike_before:.0%} at the beginning." if alike_before is not None else "."),
                alike,
                baseline=alike_before,
            )
        )
    opened = now.estimate > OPENS and grown.low > GREW
    verdict = Verdict.SICK if same and opened else Verdict.WATCH if same or opened else Verdict.OK
    return finding(
        "S16",
        verdict,
        framework=case.framework,
        evidence=evidence,
        onset=onset(case.samples, holds, before=before.estimate, after=now.estimate) if opened else None,
        rows=excerpts(late, holds, lambda sample: (head(sample.text), f'opens with "{text}"')),
    )
