import errno
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.core.errors import RunDamagedError, StorageFullError, UsageError
from springtide.training.checkpoint import MANIFEST, CheckpointStore
from springtide.training.config import CheckpointConfig


def store(folder, **config):
    return CheckpointStore(folder, CheckpointConfig(**config))


def writer(text):
    def write(folder):
        (folder / "weights").write_text(text)
        (folder / "part").mkdir()
        (folder / "part" / "state").write_bytes(text.encode() * 100)

    return write


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_is_found_again(tmp_path):
    checkpoints = store(tmp_path / "checkpoints")
    assert checkpoints.latest_valid() is None
    checkpoints.save(0, writer("a"), {"next_group": 3})
    checkpoints.save(10, writer("b"), {"next_group": 7})
    found = checkpoints.latest_valid()
    assert found is not None
    assert (found.step, found.position) == (10, {"next_group": 7})
    assert (found.path / "weights").read_text() == "b"
    older = checkpoints.latest_valid(newest=9)
    assert older is not None
    assert older.step == 0
    assert checkpoints.at(0).position == {"next_group": 3}
    with pytest.raises(UsageError, match="0, 10"):
        checkpoints.at(5)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=12, unique=True),
    st.integers(1, 4),
    st.integers(1, 20),
)
@settings(max_examples=12, deadline=None)
def test_retention(tmp_path_factory, steps, keep, keep_every):
    folder = tmp_path_factory.mktemp("run")
    checkpoints = store(folder, keep=keep, keep_every=keep_every)
    ordered = sorted({0, *steps})
    for step in ordered:
        checkpoints.save(step, writer("x"), {})
    expected = {s for s in ordered if s % keep_every == 0} | {0} | set(ordered[-keep:])
    assert set(checkpoints.steps()) == expected
    assert names(folder) == [f"step-{step:06d}" for step in sorted(expected)]


def test_a_run_that_went_back_behind_damaged_checkpoints_keeps_what_it_saves(tmp_path):
    checkpoints = store(tmp_path, keep=1, keep_every=50)
    for step in (0, 5, 10):
        checkpoints.save(step, writer("x"), {})
    (tmp_path / "step-000010" / "weights").write_text("scratched")
    assert checkpoints.save(6, writer("y"), {}).is_dir()
    assert checkpoints.steps() == [0, 6, 10]
    found = checkpoints.latest_valid()
    assert found is not None
    assert found.step == 6
    checkpoints.save(10, writer("z"), {})
    assert checkpoints.steps() == [0, 10]
    assert checkpoints.at(10).step == 10


@pytest.mark.parametrize("name", ["weights", "part/state", MANIFEST])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_checkpoint_is_named_and_an_older_one_taken(tmp_path, caplog, name, harm):
    checkpoints = store(tmp_path)
    checkpoints.save(0, writer("a"), {"n": 0})
    checkpoints.save(1, writer("b"), {"n": 123456})
    path = tmp_path / "step-000001" / name
    content = bytearray(path.read_bytes())
    if harm == "remove":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(content[:-3])
    elif name == MANIFEST:
        path.write_bytes(content.replace(b"123456", b"123457"))
    else:
        content[0] ^= 1
        path.write_bytes(content)
    found = checkpoints.latest_valid()
    assert found is not None
    assert found.step == 0
    assert f"step-000001 is damaged ({name})" in caplog.text
    with pytest.raises(RunDamagedError, match=name):
        checkpoints.at(1)
    checkpoints.save(1, writer("b"), {"n": 2})
    assert checkpoints.at(1).position == {"n": 2}
    assert names(tmp_path) == ["step-000000", "step-000001"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_older_ones_and_no_rest(tmp_path, code):
    checkpoints = store(tmp_path)
    checkpoints.save(0, writer("a"), {})

    def write(folder):
        (folder / "weights").write_text("half")
        raise OSError(code, os.strerror(code))

    with pytest.raises(StorageFullError, match="disk is full"):
        checkpoints.save(1, write, {})
    assert names(tmp_path) == ["step-000000"]
    assert checkpoints.at(0).step == 0


def test_a_writer_that_fails_leaves_no_rest(tmp_path):
    checkpoints = store(tmp_path)

    def write(folder):
        (folder / "weights").write_text("half")
        raise KeyError("bug")

    with pytest.raises(KeyError):
        checkpoints.save(1, write, {})
    assert names(tmp_path) == []


def test_a_process_that_dies_while_writing_leaves_nothing_that_counts(tmp_path):
    checkpoints = store(tmp_path)
    checkpoints.save(0, writer("a"), {})
    with pytest.raises(SystemExit):
        checkpoints.save(1, lambda folder: sys.exit(1), {})
    (tmp_path / ".scratch-000002").mkdir()
    (tmp_path / ".scratch-000002" / "weights").write_text("half")
    found = checkpoints.latest_valid()
    assert found is not None
    assert found.step == 0
    checkpoints.save(2, writer("c"), {})
    assert names(tmp_path) == ["step-000000", "step-000002"]


def test_the_store_needs_no_torch():
    code = "import sys, springtide.training.checkpoint; print('torch' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"
