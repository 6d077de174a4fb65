"""What a report says of one run, in the order in which a colleague who was not there needs it.

Every view (terminal, Markdown, HTML) prints these sentences; none has words of its own about a run. What comes from a
log is still as the log has it here: each view makes it harmless in its own way.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from springtide.diagnosis.alias import tables
from springtide.diagnosis.frame import Frame
from springtide.diagnosis.metric import metrics
from springtide.diagnosis.rule import rules
from springtide.diagnosis.verdict import Cause, Diagnosis, Excerpt, Symptom, Verdict

SEVERITY = (Verdict.SICK, Verdict.WATCH, Verdict.INSUFFICIENT, Verdict.UNAVAILABLE, Verdict.OK)
"""The worst first. What could not be judged stands before what is fine: silence is no health."""


_UNMEASURED = "This rule has not"

LIKELY = 5
"""Causes that a report tells at length; of the others it has the titles."""

CLOSE = 0.5
"""Log-odds within which two causes are about as likely."""


@dataclass(frozen=True)
class Examined:
    """One run, and what was found in it."""

    frame: Frame
    diagnosis: Diagnosis


@dataclass(frozen=True)
class Gap:
    """Metrics that one setting turns on; `tells`: the symptoms that can be looked for then. `reason`: why they are
    missing, if it is the same for all."""

    turn_on: str
    metrics: tuple[str, ...]
    reason: str
    tells: tuple[str, ...]


@dataclass(frozen=True)
class Account:
    """`findings`: SICK and WATCH, the worst first and otherwise as the diagnosis has them. `causes`: of
    the run as a whole, the likeliest first. `gaps`: what can be turned on, the most telling first; `never`: what this
    framework has no key for. `settings`: as far as the log says; `unknown`: keys that no metric is known for."""

    source: str
    framework: str
    span: str
    steps: int
    verdict: Verdict
    headline: str
    findings: tuple[Symptom, ...]
    others: tuple[Symptom, ...]
    mover: str
    rollback: str
    causes: tuple[Cause, ...]
    next_check: str
    gaps: tuple[Gap, ...]
    never: tuple[Gap, ...]
    not_checked: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    settings: tuple[str, ...]
    unknown: tuple[str, ...]


def account(examined: Examined) -> Account:
    frame, found = examined.frame, examined.diagnosis
    findings = _findings(found)
    causes = _causes(found, findings)
    gaps = _gaps(found)
    return Account(
        source=found.source,
        framework=framework_title(found.framework),
        span=_span(frame, found),
        steps=found.steps,
        verdict=found.verdict,
        headline=_headline(examined, findings),
        findings=findings,
        others=tuple(each for each in found.symptoms if each not in findings),
        mover=_mover(found),
        rollback=_rollback(found, frame),
        causes=causes,
        next_check=_next_check(findings, causes),
        gaps=tuple(gap for gap in gaps if gap.turn_on),
        never=tuple(gap for gap in gaps if not gap.turn_on),
        not_checked=tuple(sorted(found.not_checked.items())),
        notes=notes(examined),
        settings=tuple(f"{name} = {value}" for name, value in sorted(frame.settings.items())),
        unknown=frame.unknown,
    )


def notes(examined: Examined) -> tuple[str, ...]:
    """About the file itself; the error that the run ended with first."""
    said = [f"The run ended with an error: {examined.frame.error}"] if examined.frame.error else []
    said += [note.text if note.line is None else f"line {note.line}: {note.text}" for note in examined.frame.notes]
    return tuple(dict.fromkeys([*said, *examined.diagnosis.notes]))


def overview(accounts: Sequence[Account]) -> tuple[str, list[str]]:
    """Of several runs: how many there are of each verdict and where, and their names within that folder."""
    counts = Counter(told.verdict for told in accounts)
    said = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in SEVERITY if counts[verdict])
    sources = [told.source for told in accounts]
    try:
        folder = os.path.commonpath([os.path.dirname(source) for source in sources]).rstrip(os.sep)
    except ValueError:  # some are absolute and some are not
        folder = ""
    if not folder:
        return f"{len(accounts)} runs: {said}", sources
    return f"{len(accounts)} runs in {folder}: {said}", [source[len(folder) + 1 :] for source in sources]


def framework_title(name: str) -> str:
    return next((table.title for table in tables() if table.framework == name), name)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Of several runs or symptoms."""
    return min(verdicts, key=SEVERITY.index, default=Verdict.UNAVAILABLE)


def cause_title(cause: Cause, causes: Sequence[Cause]) -> str:
    """A cause's title among those of the run; that a rival is hardly less likely than the first is said with it."""
    close = cause is not causes[0] and causes[0].score - cause.score < CLOSE
    return f"{cause.title} (about as likely)" if close else cause.title


def place(row: Excerpt) -> str:
    """Where a completion stands and what it earned."""
    facts = [f"step {row.step}", f"group {row.group}" * bool(row.group)]
    facts += [f"reward {number(row.reward)}"] if row.reward is not None else []
    return ", ".join([*(fact for fact in facts if fact), row.place])


def trust(symptom: Symptom) -> str:
    """How far its rule can be trusted, as measured."""
    if not symptom.measured or symptom.measured.startswith(_UNMEASURED):
        return f"{_UNMEASURED} been run on data."
    return f"How far to trust this rule: {symptom.measured}"


def since(symptom: Symptom) -> str:
    return "over the whole run" if symptom.onset_step is None else f"since step {symptom.onset_step}"


def seen(symptom: Symptom) -> str:
    """From when on a symptom could have been told, which is some values after it began."""
    if symptom.seen_step is None or symptom.seen_step == symptom.onset_step:
        return ""
    return f"It could be told from step {symptom.seen_step} on."


def meaning(metric: str) -> str:
    """What a canonical metric is, in words; its name where nothing is known of it."""
    known = metrics()
    entry = known.get(metric) or known.get(f"{metric.rpartition('/')[0]}/*")
    return metric if entry is None else entry.meaning.rstrip(".")


def number(value: float) -> str:
    """Three significant digits, as people write them."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def _findings(found: Diagnosis) -> tuple[Symptom, ...]:
    there = [each for each in found.symptoms if each.verdict in (Verdict.SICK, Verdict.WATCH)]
    return tuple(sorted(there, key=lambda each: SEVERITY.index(each.verdict)))


def _causes(found: Diagnosis, findings: Sequence[Symptom]) -> tuple[Cause, ...]:
    """Those of the run, after those of its worst symptom where the run's own do not know them."""
    own = findings[0].causes if findings else ()
    known = {cause.id for cause in found.causes}
    if not own or own[0].id in known:
        return found.causes
    return (*(cause for cause in own if cause.id not in known), *found.causes)


def _next_check(findings: Sequence[Symptom], causes: Sequence[Cause]) -> str:
    """Of the likeliest cause of the run: what tells it from the others."""
    if causes and causes[0].check:
        return causes[0].check
    return findings[0].next_check if findings else ""


def _span(frame: Frame, found: Diagnosis) -> str:
    first, last = frame.first_step, frame.last_step
    rows = f"{frame.rows:,} row{'' if frame.rows == 1 else 's'}"
    if frame.last_only:
        return f"last values only, at step {found.steps}"
    if first is None or last is None:
        return f"no values, {rows}"
    return f"steps {first} to {last}, {rows}"


def _headline(examined: Examined, findings: Sequence[Symptom]) -> str:
    found = examined.diagnosis
    if found.verdict in (Verdict.SICK, Verdict.WATCH) and findings:
        return f"{findings[0].title} ({findings[0].id}), {since(findings[0])}"
    looked = sum(each.verdict is Verdict.OK for each in found.symptoms)
    if found.verdict is Verdict.OK:
        return f"No symptom found; {looked} were looked for"
    if examined.frame.error:
        return f"The run ended before there was enough to judge: {examined.frame.error}"
    reasons = [reason for _, reason in sorted(found.not_checked.items())]
    common = max(set(reasons), key=lambda each: (reasons.count(each), each), default="")
    if found.verdict is Verdict.INSUFFICIENT:
        return "Too few values to say anything" + (f": {common}" if common else "")
    return "What a diagnosis needs was not logged" + (f": {common}" if common else "")


def _mover(found: Diagnosis) -> str:
    mover = found.earliest_mover
    if mover is None:
        return ""
    return f"{mover.metric} at step {mover.step} ({mover.symptom})"


def _rollback(found: Diagnosis, frame: Frame) -> str:
    mover = found.earliest_mover
    if mover is None:
        return ""
    if found.rollback_step is not None:
        return f"step {found.rollback_step}, the last checkpoint before {mover.metric} moved"
    if frame.checkpoints:
        return f"no checkpoint before step {mover.step} is known; the first is of step {min(frame.checkpoints)}"
    return f"the last checkpoint before step {mover.step}; the log names none"


def _gaps(found: Diagnosis) -> list[Gap]:
    """Missing metrics together by what turns them on, those that tell most first."""
    needed_by: dict[str, set[str]] = {}
    for rule in rules():
        for metric in rule.needs:
            needed_by.setdefault(metric, set()).add(rule.id)
    together: dict[tuple[str, str], list[str]] = {}
    for missing in found.unavailable:
        together.setdefault((missing.turn_on, "" if missing.turn_on else missing.reason), []).append(missing.metric)
    reasons = {missing.metric: missing.reason for missing in found.unavailable}
    gaps = []
    for (turn_on, _), names in together.items():
        why = {reasons[name] for name in names}
        tells = sorted(set().union(*(needed_by.get(name, set()) for name in names)))
        gaps.append(Gap(turn_on, tuple(names), why.pop() if len(why) == 1 else "", tuple(tells)))
    return sorted(gaps, key=lambda gap: (-len(gap.tells), gap.metrics))
