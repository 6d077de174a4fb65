"""The monitor inside training: diagnoses the run every so many steps and records the verdicts with it.

A sink that only counts. The diagnosis itself reads the run's folder on a thread of its own, as it would after the run,
and changes nothing in it: training waits for it at the very end alone. If one is still at work when the next is due,
that one is left out, and the thread takes at most a twentieth of a core. A diagnosis that fails is said once.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from springtide.diagnosis.verdict import Diagnosis, Symptom, Verdict
from springtide.telemetry.record import MetricRecord
from springtide.telemetry.verdicts import SymptomRecord, VerdictFile, VerdictRecord

LOGGER = logging.getLogger("springtide.diagnosis")

OWN_SHARE = 20.0
"""A diagnosis begins no sooner than so many times what the last one took of a core."""

MARK = "reward/mean"
"""The metric by which a record is one of a train step."""

PATIENCE = 60.0
"""Seconds that the end of a run waits for a diagnosis that is at work."""

Start = Callable[[Callable[[], None]], None]
"""Begins some work and returns."""


class DiagnosisSink:
    """Implements Sink. `diagnose`: of the run's folder, None where there is nothing to say yet."""

    def __init__(
        self,
        folder: Path,
        output: Path,
        *,
        every: int,
        diagnose: Callable[[Path], Diagnosis | None] | None = None,
        start: Start | None = None,
        now: Callable[[], float] = time.time,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        """`spent`: seconds of processor time of the thread that asks."""
        self.name = str(output)
        self._folder = folder
        self._file = VerdictFile(output)
        self._every = every
        self._diagnose = diagnose or diagnose_folder
        self._start = start or self._on_thread
        self._now = now
        self._spent = spent
        self._step = 0
        self._looked_at: int | None = None
        self._next = float("-inf")
        self._at_work = threading.Event()
        self._thread: threading.Thread | None = None
        self._warned: set[str] = set()
        self._broken = False

    def write(self, record: MetricRecord) -> None:
        if MARK not in record.metrics or record.step <= 0:
            return
        if self._looked_at is None:
            self._looked_at = record.step - 1
        self._step = record.step
        due = self._step - self._looked_at >= self._every or self._step < self._looked_at
        if due and not self._broken and not self._at_work.is_set() and self._now() >= self._next:
            self._begin()

    def close(self) -> None:
        """Wait for what is at work, then say the last word on the run."""
        if self._thread is not None:
            self._thread.join(PATIENCE)
        if self._broken or self._looked_at is None or self._at_work.is_set():
            return
        if self._step > self._looked_at:
            self._at_work.set()
            self._look()

    def _begin(self) -> None:
        self._looked_at = self._step
        self._at_work.set()
        self._start(self._look)

    def _on_thread(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, name="diagnosis", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        began = self._spent()
        try:
            found = self._diagnose(self._folder)
            if found is not None:
                self._file.append(record_of(found, self._now()))
                self._warn(found)
        except Exception as error:
            self._broken = True
            LOGGER.warning("The run is no longer diagnosed while it trains: %s.", error or type(error).__name__)
        finally:
            self._next = self._now() + OWN_SHARE * (self._spent() - began)
            self._at_work.clear()

    def _warn(self, found: Diagnosis) -> None:
        """Of each symptom that makes the run SICK, once."""
        for symptom in found.symptoms:
            if found.verdict is Verdict.SICK and symptom.verdict is Verdict.SICK and symptom.id not in self._warned:
                self._warned.add(symptom.id)
                since = "" if symptom.onset_step is None else f" since step {symptom.onset_step}"
                LOGGER.warning("%s %s%s: see `springtide doctor %s`.", symptom.id, symptom.title, since, self._folder)


def diagnosis_sink(folder: Path, output: Path, every: int) -> DiagnosisSink | None:
    """None where the recipe switches it off."""
    return DiagnosisSink(folder, output, every=every) if every else None


def diagnose_folder(folder: Path) -> Diagnosis | None:
    """Of one of our runs as it is now."""
    from springtide.diagnosis.diagnose import diagnose
    from springtide.diagnosis.read import read

    frames = read(folder)
    return diagnose(frames[-1]) if frames else None


def record_of(found: Diagnosis, now: float) -> VerdictRecord:
    mover = found.earliest_mover
    holding = [symptom for symptom in found.symptoms if symptom.verdict in (Verdict.SICK, Verdict.WATCH)]
    return VerdictRecord(
        time=now,
        step=found.steps,
        verdict=found.verdict.value,
        symptoms=tuple(
            _symptom(symptom) for symptom in sorted(holding, key=lambda each: each.verdict is Verdict.WATCH)
        ),
        earliest_mover="" if mover is None else mover.metric,
        rollback_step=found.rollback_step,
    )


def _symptom(symptom: Symptom) -> SymptomRecord:
    return SymptomRecord(
        id=symptom.id,
        title=symptom.title,
        verdict=symptom.verdict.value,
        onset_step=symptom.onset_step,
        text=" ".join(evidence.text for evidence in symptom.evidence),
        causes=tuple(cause.title for cause in symptom.causes[:3]),
        next_check=symptom.next_check,
        remedy=symptom.causes[0].remedy if symptom.causes else "",
    )
