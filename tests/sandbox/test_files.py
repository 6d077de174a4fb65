"""Writing and reading from outside stay inside the working directory, whatever the agent left there."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from springtide.ports.sandbox import Box, CommandEnd

Run = Callable[[Coroutine[Any, Any, Any]], Any]

PARTS = st.sampled_from(["a", "b", "link", "up", "..", ".", "", "etc", "passwd", "ünï", "x" * 300, "a\nb", "-rf"])
PATHS = st.lists(PARTS, min_size=1, max_size=5).map("/".join)


def test_what_is_written_is_read_here_and_there(box: Box, run: Run) -> None:
    content = bytes(range(256))
    run(box.write({"deep/er/file": content, "empty": b""}))
    assert run(box.read("deep/er/file")) == content
    assert run(box.read("empty")) == b""
    assert run(box.run("cat deep/er/file")).output == content
    assert run(box.read("deep/er/file", limit=10)) == content[:10]


def test_a_file_is_replaced_and_stays_executable(box: Box, run: Run) -> None:
    run(box.write({"run.sh": b"#!/bin/sh\necho one\n"}))
    assert run(box.run("chmod +x run.sh; ln run.sh other; ./run.sh")).output == b"one\n"
    run(box.write({"run.sh": b"#!/bin/sh\necho two\n"}))
    assert run(box.run("./run.sh; ./other")).output == b"two\none\n"


def test_there_is_nothing_to_read_where_no_plain_file_is(box: Box, run: Run) -> None:
    run(
        box.run("mkdir folder; mkfifo pipe; ln -s /etc/passwd link; ln -s folder door; touch folder/f; ln -s loop loop")
    )
    for path in (
        "folder",
        "pipe",
        "link",
        "door/f",
        "loop",
        "missing",
        "f/f",
        "/etc/passwd",
        "../etc/passwd",
        "",
        "a\0b",
    ):
        assert run(box.read(path)) is None, path


def test_a_link_is_replaced_and_not_followed(box: Box, run: Run) -> None:
    run(box.run("ln -s /tmp/target link; echo old > /tmp/target; mkdir real; ln -s real door; mkfifo pipe"))
    run(box.write({"link": b"new", "pipe": b"new"}))
    assert run(box.run("cat /tmp/target link pipe; test -L link")).output == b"old\nnewnew"
    with pytest.raises(OSError, match="door/f"):
        run(box.write({"door/f": b"x"}))
    assert run(box.run("ls real")).output == b""


@pytest.mark.parametrize("path", ["/abs", "../up", "a/../../b", "", "a//b", "./a", "nul\0"])
def test_writing_outside_is_a_mistake_of_the_caller(box: Box, run: Run, path: str) -> None:
    with pytest.raises(ValueError, match="must be relative"):
        run(box.write({path: b"x"}))


def test_a_full_disk_is_told_and_what_stands_in_the_way_too(box: Box, run: Run) -> None:
    with pytest.raises(OSError, match="No space left"):
        run(box.write({"big": bytes(9 << 20)}))
    run(box.run("mkdir folder"))
    run(box.write({"big": b"", "file": b""}))
    with pytest.raises(OSError, match="Not a directory"):
        run(box.write({"file/inner": b""}))
    with pytest.raises(OSError, match="Is a directory"):
        run(box.write({"folder": b""}))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(paths=st.lists(PATHS, min_size=1, max_size=4))
def test_no_path_leaves_the_working_directory(box: Box, run: Run, paths: list[str]) -> None:
    prepare = (
        "find . -mindepth 1 -delete; ln -s / link; ln -s .. up; mkdir a; cp /etc/passwd /tmp/before; touch /tmp/mark"
    )
    assert run(box.run(prepare)).end is CommandEnd.OK
    for path in paths:
        try:
            run(box.write({path: b"mine"}))
        except (ValueError, OSError):
            assert run(box.read(path)) is None
        else:
            assert run(box.read(path)) == b"mine"
            assert all(part not in ("..", ".", "") for part in path.split("/"))
    stray = "find / -xdev ( -path /proc -o -path /usr -o -path /work ) -prune -o -type f -newer /tmp/mark -print"
    check = run(
        box.run(f"cmp /etc/passwd /tmp/before && {stray.replace('(', chr(92) + '(').replace(')', chr(92) + ')')}")
    )
    assert (check.end, check.output) == (CommandEnd.OK, b"")
