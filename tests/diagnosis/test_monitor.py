"""The monitor inside training: when it looks, what it records, and that training never minds."""

import logging
import threading

import pytest

from springtide.diagnosis.monitor import OWN_SHARE, DiagnosisSink, diagnosis_sink
from springtide.diagnosis.verdict import Cause, Diagnosis, Evidence, Mover, Symptom, Verdict
from springtide.telemetry.record import MetricRecord
from springtide.telemetry.verdicts import newest_verdict, read_verdicts

SICK = Symptom(
    id="S06",
    name="collapse",
    title="The reward collapses",
    verdict=Verdict.SICK,
    onset_step=12,
    evidence=(Evidence(metric="reward/mean", text="It fell to 0."),),
    causes=(Cause(id="lr", title="learning rate too high", score=1.0, remedy="halve it"),),
    next_check="Look at KL.",
)
WATCH = Symptom(id="S08", name="easy", title="Groups are all right", verdict=Verdict.WATCH)
FINE = Symptom(id="S20", name="entropy", title="Entropy falls", verdict=Verdict.OK)


def diagnosis(step, verdict=Verdict.OK, symptoms=()):
    mover = Mover(metric="train/entropy", step=11, symptom="S06") if verdict is Verdict.SICK else None
    rollback = 10 if mover else None
    return Diagnosis(
        source="run",
        framework="springtide",
        steps=step,
        verdict=verdict,
        symptoms=symptoms,
        earliest_mover=mover,
        rollback_step=rollback,
    )


def step(number, **metrics):
    return MetricRecord(time=0.0, step=number, metrics={"reward/mean": 0.5} | metrics)


class Runs:
    """A sink whose work is done when the test says so."""

    def __init__(self, folder, *, every=5, found=None, took=0.0):
        self.time = 0.0
        self.took = took
        self.work = []
        self.looks = []
        self.found = found or (lambda number: diagnosis(number))
        self.last = 0
        self.sink = DiagnosisSink(
            folder,
            folder / "diagnosis.jsonl",
            every=every,
            diagnose=self._diagnose,
            start=self.work.append,
            now=lambda: self.time,
            spent=lambda: self.time,
        )

    def _diagnose(self, folder):
        self.looks.append(self.last)
        self.time += self.took
        return self.found(self.last)

    def train(self, first, last, *, work=True):
        for number in range(first, last + 1):
            self.last = number
            self.sink.write(step(number))
            while work and self.work:
                self.work.pop(0)()


def test_looks_every_so_many_steps_and_at_the_end(tmp_path):
    runs = Runs(tmp_path)
    runs.train(1, 12)
    assert runs.looks == [5, 10]
    runs.sink.close()
    assert runs.looks == [5, 10, 12]
    assert [record.step for record in read_verdicts(tmp_path / "diagnosis.jsonl")] == [5, 10, 12]


def test_a_run_that_ends_on_a_look_is_not_looked_at_twice(tmp_path):
    runs = Runs(tmp_path)
    runs.train(1, 10)
    runs.sink.close()
    assert runs.looks == [5, 10]


def test_warm_start_and_evaluations_are_no_train_steps(tmp_path):
    runs = Runs(tmp_path, every=1)
    runs.sink.write(MetricRecord(time=0.0, step=-3, metrics={"warm_start/loss": 1.0}))
    runs.sink.write(MetricRecord(time=0.0, step=0, metrics={"eval/success": 0.5}))
    runs.sink.close()
    assert runs.looks == []
    assert not (tmp_path / "diagnosis.jsonl").exists()


def test_training_goes_on_while_a_look_is_at_work(tmp_path):
    runs = Runs(tmp_path)
    runs.train(1, 14, work=False)
    assert len(runs.work) == 1
    runs.work.pop(0)()
    runs.train(15, 15)
    assert runs.looks == [14, 15]


def test_slow_looks_become_rare(tmp_path):
    runs = Runs(tmp_path, every=1, took=2.0)
    for number in range(1, 101):
        runs.time += 1.0
        runs.train(number, number)
    assert len(runs.looks) == pytest.approx(100 / (2.0 * OWN_SHARE), abs=2)


def test_records_what_holds_the_worst_first(tmp_path):
    runs = Runs(tmp_path, found=lambda number: diagnosis(number, Verdict.SICK, (FINE, WATCH, SICK)))
    runs.train(1, 5)
    record = newest_verdict(tmp_path / "diagnosis.jsonl")
    assert (record.verdict, record.earliest_mover, record.rollback_step) == ("SICK", "train/entropy", 10)
    assert [symptom.id for symptom in record.symptoms] == ["S06", "S08"]
    worst = record.symptoms[0]
    assert (worst.onset_step, worst.text, worst.causes) == (12, "It fell to 0.", ("learning rate too high",))
    assert worst.remedy == "halve it"


def test_a_sick_run_is_said_once(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="springtide.diagnosis"):
        runs = Runs(tmp_path, found=lambda number: diagnosis(number, Verdict.SICK, (SICK, WATCH)))
        runs.train(1, 20)
    assert [record.getMessage() for record in caplog.records] == [
        f"S06 The reward collapses since step 12: see `springtide doctor {tmp_path}`."
    ]


def test_a_diagnosis_that_fails_is_said_once_and_costs_nothing_else(tmp_path, caplog):
    def fails(number):
        raise KeyError("odd")

    with caplog.at_level(logging.WARNING, logger="springtide.diagnosis"):
        runs = Runs(tmp_path, found=fails)
        runs.train(1, 30)
        runs.sink.close()
    assert runs.looks == [5]
    assert len(caplog.records) == 1


def test_a_torn_line_of_a_killed_process_is_cut_off(tmp_path):
    path = tmp_path / "diagnosis.jsonl"
    path.write_bytes(b'{"time": 1.0, "step": 5, "verdict": "OK"}\n{"time": 2.0, "st')
    runs = Runs(tmp_path)
    runs.train(6, 10)
    assert [record.step for record in read_verdicts(path)] == [5, 10]


def test_really_beside_training_and_waited_for_at_the_end(tmp_path):
    go, seen = threading.Event(), []

    def diagnose(folder):
        go.wait(30)
        seen.append(threading.current_thread().name)
        return diagnosis(5)

    sink = DiagnosisSink(tmp_path, tmp_path / "diagnosis.jsonl", every=5, diagnose=diagnose)
    for number in range(1, 6):
        sink.write(step(number))
    assert seen == []
    go.set()
    sink.close()
    assert seen == ["diagnosis"]
    assert newest_verdict(tmp_path / "diagnosis.jsonl").step == 5


def test_a_recipe_may_switch_it_off(tmp_path):
    assert diagnosis_sink(tmp_path, tmp_path / "diagnosis.jsonl", 0) is None
