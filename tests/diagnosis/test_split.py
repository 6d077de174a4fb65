"""Several runs in one file, and one run in several attempts."""

from pathlib import Path

import pytest

from springtide.diagnosis.log import Log, Row
from springtide.diagnosis.split import split


def log(*rows, **more):
    return Log(source=Path("x"), container="x", rows=tuple(rows), **more)


def rows(steps, offset=0.0):
    return [Row(values={"reward": step / 10 + offset, "epoch": 0.5}, step=step) for step in steps]


def steps(found):
    return [[row.step for row in each.rows] for each in found]


def test_one_run_stays_whole():
    assert steps(split(log(*rows(range(5))))) == [[0, 1, 2, 3, 4]]


def test_no_rows():
    assert steps(split(log())) == [[]]


def test_runs_that_were_appended():
    found = split(log(*rows([0]), *rows([0], 1), *rows([0, 1], 2), *rows([0], 3)))
    assert steps(found) == [[0], [0], [0, 1], [0]]
    assert "4 runs" in found[0].notes[0].text


def test_a_resumed_run_is_made_whole():
    (found,) = split(log(*rows(range(1, 11)), *rows(range(6, 9), 1)))
    assert [(row.step, row.values["reward"]) for row in found.rows][-3:] == [(6, 1.6), (7, 1.7), (8, 1.8)]
    assert [row.step for row in found.rows] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "resumed at step 6" in found.notes[0].text


def test_late_rows_with_names_of_their_own_are_no_restart():
    late = Row(values={"eval_reward": 0.5, "epoch": 0.5}, step=0)
    found = split(log(*rows([1, 2]), late, *rows([3]), Row(values={"eval_reward": 0.6}, step=2), *rows([4])))
    assert len(found) == 1
    assert len(found[0].rows) == 6


def test_a_row_that_is_there_twice_is_no_restart():
    assert len(split(log(*rows([1, 2]), *rows([2]), *rows([3])))) == 1


def test_several_rows_per_step_are_no_restarts():
    some = [row for step in range(8) for row in (*rows([step]), *rows([step], 1))]
    assert len(split(log(*some))) == 1


def test_the_error_is_that_of_the_last_run():
    found = split(log(*rows([0, 1, 2]), *rows([0, 1], 1), error="KeyError"))
    assert [each.error for each in found] == [None, "KeyError"]


def counted(epochs):
    return [Row(values={"loss": number / 7, "epoch": epoch}) for number, epoch in enumerate(epochs)]


def test_rows_without_steps_are_counted():
    assert steps(split(log(*counted([0.1, 0.2, 0.3]), window=5))) == [[5, 10, 15]]


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [([0.1, 0.2, 0.3, 0.1, 0.2], [[1, 2, 3], [1, 2]]), ([0.1, 0.2, 0.3, 0.4, 0.3, 0.4, 0.5], [[1, 2, 3, 4, 5]])],
)
def test_an_epoch_that_falls_back_is_a_restart_or_a_resumption(epochs, expected):
    assert steps(split(log(*counted(epochs)))) == expected
