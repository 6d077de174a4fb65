"""A watch signals the process that trains the run, and no other."""

import subprocess
import sys

import pytest

from springtide.core.errors import UsageError
from springtide.diagnosis.follow.process import RunProcess, process_of
from springtide.telemetry.run_folder import RunFolder

HOLDER = """
import sys, time
from pathlib import Path
from springtide.telemetry.run_folder import RunFolder
with RunFolder.open(sys.argv[1]).lock():
    print("holding", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(name="demo", recipe_text="", path=tmp_path / "run")


@pytest.fixture
def holder(folder):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder.path)], stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_the_trainer_of_one_of_our_runs_is_found_by_its_lock_and_stopped(folder, holder):
    found = process_of(folder.path)
    assert found.pid == holder.pid
    assert found.stop()
    assert holder.wait(timeout=60) == -15
    assert not found.stop()


def test_a_run_that_nobody_trains_has_no_process(folder):
    with pytest.raises(UsageError, match="no process on this machine"):
        process_of(folder.path)


def test_a_number_in_the_lock_of_a_process_that_does_not_hold_it_is_not_believed(folder, holder):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (folder.path / "lock").write_text(str(other.pid))
        with pytest.raises(UsageError, match="no process on this machine"):
            process_of(folder.path)
        other.kill()


def test_other_runs_need_a_number(tmp_path, holder):
    with pytest.raises(UsageError, match="--pid PID"):
        process_of(tmp_path)
    assert process_of(tmp_path, holder.pid).pid == holder.pid


@pytest.mark.parametrize("pid", [0, 1, -1, 2**22 + 7])
def test_numbers_of_nobody_are_refused(tmp_path, pid):
    with pytest.raises(UsageError, match="no such process"):
        process_of(tmp_path, pid)


def test_a_process_of_the_same_number_that_was_started_later_is_left_alone(holder):
    assert not RunProcess(holder.pid, "0").stop()
    assert holder.poll() is None
