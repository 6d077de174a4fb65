"""Probes tell a grader that pays anything from one that compares."""

import re

import pytest

from springtide.core.errors import UsageError
from springtide.diagnosis.completions.probe import ProbeTask, probe_grader
from springtide.diagnosis.verdict import Verdict

TASKS = [
    ProbeTask(prompt=f"What is {n} + {n}?", right=f"It is \\boxed{{{2 * n}}}.", data={"sum": 2 * n}) for n in range(20)
]


def compares(task, reply):
    boxes = re.findall(r"\\boxed\{(-?\d+)\}", reply)
    return float(boxes[-1:] == [str(task.data["sum"])])


def test_a_grader_that_compares_passes():
    report = probe_grader(compares, TASKS)
    assert report.verdict is Verdict.OK
    assert all(payment.paid == 0 for payment in report.payments)
    assert (report.right.rate, report.corrupted.rate) == (1.0, 0.0)


def test_one_that_looks_for_the_number_anywhere_is_caught_by_many_answers():
    report = probe_grader(lambda task, reply: float(f"{{{task.data['sum']}}}" in reply), TASKS)
    assert report.verdict is Verdict.SICK
    assert report.payments[0].probe == "many answers"
    assert report.symptoms[0].rows[0].why == "many answers is paid"


def test_one_that_pays_for_tags_is_caught():
    report = probe_grader(lambda task, reply: float("<answer>" in reply), TASKS)
    assert {payment.probe for payment in report.payments if payment.paid} == {"empty tags", "tags alone"}


def test_one_that_misses_right_answers_is_caught():
    report = probe_grader(lambda task, reply: 0.0, TASKS)
    assert report.verdict is Verdict.SICK
    assert [each.id for each in report.symptoms if each.verdict is Verdict.SICK] == ["S19"]


def test_a_grader_that_raises_has_paid_nothing():
    def breaks(task, reply):
        return compares(task, reply) if reply.strip() else 1 / 0

    report = probe_grader(breaks, TASKS)
    assert report.verdict is Verdict.OK
    assert next(payment for payment in report.payments if payment.probe == "nothing").failed == 20


def test_no_tasks_are_a_mistake():
    with pytest.raises(UsageError, match="no tasks"):
        probe_grader(compares, [])
