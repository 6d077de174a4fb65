"""From a frame to a diagnosis: each rule is judged, then the causes of the run as a whole are ranked.

A symptom is SICK only while it lasts: what healed before the end is WATCH. What was not logged is UNAVAILABLE and
never 0, too few values are INSUFFICIENT, and from last values alone no trend is told."""

from collections.abc import Iterable, Sequence

import msgspec

from springtide.diagnosis.evidence import evidence
from springtide.diagnosis.examination import Examination, Finding, departure
from springtide.diagnosis.frame import Frame
from springtide.diagnosis.ranking import of_symptom, rank
from springtide.diagnosis.rule import Guard, Rule, rules
from springtide.diagnosis.verdict import Cause, Diagnosis, Missing, Mover, Symptom, Verdict

ENOUGH = 20
"""Values of the reward without which a run that shows no symptom is not called healthy."""

KEY_METRICS = ("reward/mean", "reward/success")
"""Without any of them a run cannot be called healthy."""

SEVERITY = (Verdict.SICK, Verdict.WATCH, Verdict.INSUFFICIENT, Verdict.UNAVAILABLE, Verdict.OK)

NOT_RUN = "This rule has not been run on data."


def diagnose(frame: Frame) -> Diagnosis:
    examination = Examination(frame)
    not_checked: dict[str, str] = {}
    symptoms, findings = [], {}
    for rule in rules():
        symptom, found = _judge(rule, examination, not_checked)
        if symptom is not None:
            symptoms.append(symptom)
        if found:
            findings[rule.id] = found
    verdict = _verdict(frame, symptoms)
    holding = [each for each in symptoms if each.verdict in (Verdict.SICK, Verdict.WATCH)]
    worst = [each for each in holding if each.verdict is verdict]
    by_id = {rule.id: rule for rule in rules()}
    onset = min((each.onset_step for each in worst if each.onset_step is not None), default=None)
    ranked = rank(examination, {each.id: (by_id[each.id], each.verdict) for each in holding}, onset)
    mover = _mover(worst, findings)
    return Diagnosis(
        source=str(frame.source),
        framework=frame.framework,
        steps=frame.last_step or 0,
        verdict=verdict,
        symptoms=_ordered(symptoms, by_id, ranked),
        causes=ranked,
        earliest_mover=mover,
        rollback_step=None
        if mover is None
        else max((each for each in frame.checkpoints if each < mover.step), default=None),
        unavailable=_unavailable(frame),
        not_checked=not_checked,
        notes=tuple(note.text for note in frame.notes),
    )


def _judge(rule: Rule, examination: Examination, not_checked: dict[str, str]) -> tuple[Symptom | None, list[Finding]]:
    barred = rule.elsewhere or _barred(rule.guards, examination)
    if barred:
        not_checked[rule.id] = barred
        return None, []
    verdict, reason = _ready(rule, examination)
    if verdict is not None:
        not_checked[rule.id] = reason
        return _symptom(rule, verdict), []
    findings = [finding for detection in rule.detect for finding in examination.find(detection)]
    if not findings:
        return _symptom(rule, Verdict.OK), []
    chosen = min(findings, key=lambda each: (not _sick(each), not each.lasts, each.seen))
    alike = [each for each in findings if _sick(each) == _sick(chosen) and each.lasts == chosen.lasts]
    verdict = Verdict.SICK if _sick(chosen) else Verdict.WATCH
    if examination.frame.last_only:
        verdict = Verdict.WATCH
    return _symptom(rule, verdict, chosen), alike


def _sick(finding: Finding) -> bool:
    return finding.lasts and finding.detection.level == "SICK"


def _barred(guards: Iterable[Guard], examination: Examination) -> str:
    for guard in guards:
        if guard.setting not in examination.settings:
            continue
        value = examination.settings[guard.setting]
        if value in guard.is_ or (guard.is_not and value not in guard.is_not):
            return guard.because
    return ""


def _ready(rule: Rule, examination: Examination) -> tuple[Verdict | None, str]:
    """Why nothing can be said, if so."""
    for need in rule.needs:
        names = [name for name in examination.matching(need) if len(examination.tracks[name].raw_values)]
        if not names:
            known = examination.frame.unavailable.get(need)
            turn_on = f"; turn on: {known.turn_on}" if known is not None and known.turn_on else ""
            return Verdict.UNAVAILABLE, f"{need} was not logged{turn_on}"
        most = max(len(examination.tracks[name].raw_values) for name in names)
        if examination.frame.last_only and rule.points > 1:
            return Verdict.INSUFFICIENT, "there are last values and no history"
        if most < rule.points:
            return Verdict.INSUFFICIENT, f"{most} values of {need}, and it takes {rule.points}"
    return None, ""


def _symptom(rule: Rule, verdict: Verdict, finding: Finding | None = None) -> Symptom:
    return Symptom(
        id=rule.id,
        name=rule.name,
        title=rule.title,
        verdict=verdict,
        onset_step=None if finding is None else finding.onset,
        seen_step=None if finding is None else finding.seen,
        evidence=() if finding is None else evidence(finding),
        measured=rule.measured or NOT_RUN,
    )


def _verdict(frame: Frame, symptoms: Sequence[Symptom]) -> Verdict:
    """That of the worst symptom; without one, OK only where the reward was logged often enough to say so."""
    if not any(len(each) for each in frame.series.values()):
        return Verdict.INSUFFICIENT if frame.rows == 0 else Verdict.UNAVAILABLE
    found = {each.verdict for each in symptoms}
    if Verdict.SICK in found:
        return Verdict.SICK
    rewards = [len(frame.series[name]) for name in KEY_METRICS if name in frame.series]
    if not any(rewards):
        return Verdict.UNAVAILABLE
    if frame.last_only or max(rewards) < ENOUGH:
        return Verdict.INSUFFICIENT
    return Verdict.WATCH if Verdict.WATCH in found else Verdict.OK


def _mover(worst: Sequence[Symptom], findings: dict[str, list[Finding]]) -> Mover | None:
    moved = [
        (left.step, symptom.id, left.metric)
        for symptom in worst
        for finding in findings.get(symptom.id, ())
        for answer, index in finding.rows
        if (left := departure(answer, index)) is not None
    ]
    if not moved:
        return None
    step, id_, metric = min(moved)
    return Mover(metric=metric, step=step, symptom=id_)


def _ordered(symptoms: Iterable[Symptom], by_id: dict[str, Rule], ranked: Sequence[Cause]) -> tuple[Symptom, ...]:
    """The worst first, then the earliest; those that hold with their causes."""
    full = []
    for symptom in symptoms:
        if symptom.verdict in (Verdict.SICK, Verdict.WATCH):
            causes = of_symptom(by_id[symptom.id], ranked)
            check = causes[0].check if causes else ""
            symptom = msgspec.structs.replace(symptom, causes=causes, next_check=check)
        full.append(symptom)
    return tuple(sorted(full, key=lambda each: (SEVERITY.index(each.verdict), each.onset_step or 0, each.id)))


def _unavailable(frame: Frame) -> tuple[Missing, ...]:
    return tuple(
        Missing(metric=each.metric, reason=each.reason, turn_on=each.turn_on) for each in frame.unavailable.values()
    )
