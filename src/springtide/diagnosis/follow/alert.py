"""What a watch tells people: a symptom came or worsened, or healed; a run went silent, or was stopped."""

from typing import Literal, Protocol

import msgspec

from springtide.diagnosis.verdict import Diagnosis, Symptom, Verdict

Kind = Literal["symptom", "healed", "silent", "stopped", "not_stopped"]

SEVERITY = {Verdict.OK: 0, Verdict.WATCH: 1, Verdict.SICK: 2}
"""INSUFFICIENT and UNAVAILABLE are no news."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """`text` says all of it in one sentence or two; the rest is for machines."""

    kind: Kind
    run: str
    text: str
    time: float
    step: int
    symptom: str = ""
    verdict: str = ""
    onset_step: int | None = None
    rollback_step: int | None = None
    causes: tuple[str, ...] = ()
    next_check: str = ""
    remedy: str = ""


class Channel(Protocol):
    """Where alerts go. Neither method raises."""

    def send(self, alert: Alert) -> None: ...

    def looked(self, diagnoses: tuple[Diagnosis, ...], now: float) -> None:
        """The runs were diagnosed anew, whether or not there was anything to tell."""
        ...


def of_symptom(diagnosis: Diagnosis, symptom: Symptom, now: float) -> Alert:
    said = "; ".join(evidence.text.rstrip(". ") for evidence in symptom.evidence[:2])
    told = f" {said}." if said else ""
    since = "" if symptom.onset_step is None else f" since step {symptom.onset_step}"
    cause = symptom.causes[0] if symptom.causes else None
    likely = "" if cause is None else f" Likeliest cause: {cause.title}."
    return Alert(
        kind="symptom",
        run=diagnosis.source,
        text=f"{symptom.verdict.value} {symptom.id} {symptom.title}{since}.{told}{likely}",
        time=now,
        step=diagnosis.steps,
        symptom=symptom.id,
        verdict=symptom.verdict.value,
        onset_step=symptom.onset_step,
        rollback_step=diagnosis.rollback_step,
        causes=tuple(each.id for each in symptom.causes[:3]),
        next_check=symptom.next_check,
        remedy="" if cause is None else cause.remedy,
    )


def of_healing(diagnosis: Diagnosis, symptom: str, now: float) -> Alert:
    text = f"{symptom} is gone at step {diagnosis.steps}."
    return Alert(kind="healed", run=diagnosis.source, text=text, time=now, step=diagnosis.steps, symptom=symptom)
