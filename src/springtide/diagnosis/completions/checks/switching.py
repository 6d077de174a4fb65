"""S38. Worth a look, not known to be a fault: the rule never says more than WATCH."""

from springtide.diagnosis.completions.case import Case, percent
from springtide.diagnosis.completions.finding import excerpts, finding, head, onset
from springtide.diagnosis.completions.language import letters, switches, thinks
from springtide.diagnosis.completions.sample import Sample
from springtide.diagnosis.completions.share import rise, share
from springtide.diagnosis.verdict import Symptom, Verdict

GREW = 0.1
"""Ten points more completions in another script, or fewer with thoughts; lower bound."""


def check(case: Case) -> Symptom:
    early, late = case.window.early, case.window.late
    switched, thought = case.remembered(switches), case.remembered(thinks)
    now, before = share(late, switched), share(early, switched)
    if now is None:
        return finding("S38", Verdict.UNAVAILABLE, framework=case.framework)
    text = f"{percent(now)} of completions use a script that their prompt does not"
    text += f", {percent(before)} at the beginning." if before is not None else "."
    evidence = [case.evidence("completion/switched", text, now, baseline=before)]
    if not case.window.comparable or before is None:
        return finding("S38", Verdict.INSUFFICIENT, framework=case.framework, evidence=evidence)
    more, fewer = rise(early, late, switched), rise(early, late, thought)
    leaves = more is not None and more.low > GREW
    silent = fewer is not None and fewer.high < -GREW
    if silent:
        evidence.append(
            case.evidence(
                "completion/thoughts",
                f"{percent(share(late, thought))} of completions have tags of thought, "
                f"{percent(share(early, thought))} at the beginning.",
            )
        )
    return finding(
        "S38",
        Verdict.WATCH if leaves or silent else Verdict.OK,
        framework=case.framework,
        evidence=evidence,
        onset=onset(case.samples, switched, before=before.estimate, after=now.estimate) if leaves else None,
        rows=excerpts(late, switched, _tell) if leaves else excerpts(late, lambda sample: not thought(sample), _plain),
    )


def _tell(sample: Sample) -> tuple[str, str]:
    counted = letters(sample.text)
    return head(sample.text), "letters: " + ", ".join(f"{count} {name}" for name, count in counted.items())


def _plain(sample: Sample) -> tuple[str, str]:
    return head(sample.text), "no tag of thought"
