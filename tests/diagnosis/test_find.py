"""What is found under a path, and what is said of what cannot be looked at."""

import json
from pathlib import Path

import pytest

from springtide.core.errors import UsageError
from springtide.diagnosis import find, sniff
from springtide.diagnosis.read import read


def log(path, rows=20):
    path.write_text("".join(json.dumps({"step": n, "reward": 0.1 * n, "loss": 1.0}) + "\n" for n in range(rows)))
    return path


def test_a_link_to_itself_hides_nothing(tmp_path):
    log(tmp_path / "run.jsonl")
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "gone").symlink_to("nowhere")
    (found,) = read(tmp_path)
    assert found.rows == 20
    assert not found.notes


@pytest.fixture
def locked(monkeypatch):
    """Paths that the system does not let anybody read: a test may run as one who may read everything."""

    def claimed(path: Path):
        if "locked" in path.name:
            raise PermissionError(13, "Permission denied", str(path))
        return sniff.reader_of(path)

    monkeypatch.setattr(find, "reader_of", claimed)


@pytest.mark.parametrize("folder", [False, True])
def test_what_may_not_be_read_is_said_and_keeps_nothing_else_from_being_read(tmp_path, locked, folder):
    log(tmp_path / "run.jsonl")
    other = tmp_path / "locked"
    if folder:
        other.mkdir()
    else:
        log(other)
    (found,) = read(tmp_path)
    assert found.rows == 20
    assert [note.text for note in found.notes] == [f"{other} could not be read (Permission denied)."]


def test_if_nothing_may_be_read_the_reason_is_said(tmp_path, locked):
    log(tmp_path / "locked")
    with pytest.raises(UsageError, match=r"locked could not be read \(Permission denied\).*make it readable"):
        read(tmp_path)


@pytest.mark.parametrize("place", [0, 300, 1100])
def test_zero_bytes_that_a_crash_left_cost_no_more_than_a_row(tmp_path, place):
    path = tmp_path / "console.log"
    lines = [f"step:{n} - critic/score/mean:{n / 50:.3f} - actor/grad_norm:0.5 - actor/lr:0.1\n" for n in range(40)]
    data = "".join(lines).encode()
    path.write_bytes(data[:place] + b"\0" * 5 + data[place:])
    (found,) = read(path)
    assert found.rows >= 39


def test_thousands_of_short_logs_are_not_compared_with_each_other(tmp_path, monkeypatch):
    for number in range(60):
        log(tmp_path / f"{number}.jsonl", rows=1)
    monkeypatch.setattr("springtide.diagnosis.join._one_run", lambda one, other: pytest.fail("compared"))
    assert len(read(tmp_path)) == 60
