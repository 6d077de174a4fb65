"""The diagnosis of a run's completions: six symptoms, and the measures by step for curves."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from springtide.diagnosis.completions.answer import unique_answers
from springtide.diagnosis.completions.case import Case
from springtide.diagnosis.completions.checks import exploiting, length_pay, looping, misgrading, switching, templating
from springtide.diagnosis.completions.finding import by_step
from springtide.diagnosis.completions.grading import unparsed
from springtide.diagnosis.completions.language import switches
from springtide.diagnosis.completions.length import length_reward
from springtide.diagnosis.completions.opening import commonest_opening, similarity
from springtide.diagnosis.completions.read import read_files, read_samples
from springtide.diagnosis.completions.repetition import loops
from springtide.diagnosis.completions.sample import Sample, Samples
from springtide.diagnosis.completions.share import Holds, share
from springtide.diagnosis.completions.touching import touches
from springtide.diagnosis.frame import Frame, Series
from springtide.diagnosis.verdict import Diagnosis, Symptom, Verdict

CHECKS = (length_pay.check, exploiting.check, templating.check, misgrading.check, looping.check, switching.check)

WORST = (Verdict.UNAVAILABLE, Verdict.INSUFFICIENT, Verdict.OK, Verdict.WATCH, Verdict.SICK)


class CompletionReport(msgspec.Struct, frozen=True, kw_only=True):
    """`samples`: completions that were looked at, of `rows` that were there. `measures`: by name, (step, value)."""

    source: str
    framework: str
    samples: int
    rows: int
    steps: int
    verdict: Verdict
    symptoms: tuple[Symptom, ...]
    measures: dict[str, tuple[tuple[int, float], ...]]
    notes: tuple[str, ...] = ()


def diagnose_completions(path: Path) -> CompletionReport:
    """Of a folder with dumped rollouts, a file of them, or one of our own runs. UsageError if there are none."""
    return analyse(read_samples(path))


def analyse(found: Samples) -> CompletionReport:
    case = Case.of(found)
    symptoms = tuple(check(case) for check in CHECKS)
    return CompletionReport(
        source=str(found.source),
        framework=found.framework,
        samples=len(found.samples),
        rows=found.rows,
        steps=len(found.steps),
        verdict=max((symptom.verdict for symptom in symptoms), key=WORST.index),
        symptoms=symptoms,
        measures={name: tuple(points) for name, points in _measures(case).items() if points},
        notes=tuple(note.text for note in found.notes),
    )


def with_completions(diagnosis: Diagnosis, frame: Frame) -> Diagnosis:
    """The diagnosis of a run with what its dumped rollouts show, if it has any. Never raises for what is in them."""
    if not frame.samples:
        return diagnosis
    report = analyse(read_files(frame.samples, source=frame.source))
    if not report.samples:
        return msgspec.structs.replace(diagnosis, notes=(*diagnosis.notes, *report.notes))
    replaced = {symptom.id for symptom in report.symptoms}
    kept = [symptom for symptom in diagnosis.symptoms if symptom.id not in replaced]
    return msgspec.structs.replace(
        diagnosis,
        symptoms=tuple(sorted((*kept, *report.symptoms), key=lambda symptom: -WORST.index(symptom.verdict))),
        verdict=max(diagnosis.verdict, report.verdict, key=WORST.index),
        not_checked={name: why for name, why in diagnosis.not_checked.items() if name not in replaced},
        notes=(*diagnosis.notes, *report.notes),
    )


def completion_series(report: CompletionReport) -> dict[str, Series]:
    """The measures as series of a frame."""
    return {
        name: Series(
            name=name,
            key=name,
            steps=np.array([step for step, _ in points], dtype=np.int64),
            values=np.array([value for _, value in points], dtype=np.float64),
        )
        for name, points in report.measures.items()
    }


def _measures(case: Case) -> dict[str, list[tuple[int, float]]]:
    def rate(holds: Holds) -> Callable[[Sequence[Sample]], float | None]:
        remembered = case.remembered(holds)

        def measure(members: Sequence[Sample]) -> float | None:
            found = share(members, remembered)
            return None if found is None else found.estimate

        return measure

    measures: dict[str, Callable[[Sequence[Sample]], float | None]] = {
        "completion/repetition": rate(loops),
        "completion/touching": rate(touches),
        "completion/switched": rate(switches),
        "completion/unparsed": rate(unparsed),
        "completion/opening_share": lambda members: commonest_opening(members)[1] if case.written else None,
        "completion/similarity": similarity,
        "completion/unique_answers": unique_answers,
        "completion/length_reward": lambda members: None if (r := length_reward(members)) is None else r.estimate,
    }
    steps = by_step(case.samples)
    return {
        name: [(step, value) for step, members in steps.items() if (value := measure(members)) is not None]
        for name, measure in measures.items()
    }
