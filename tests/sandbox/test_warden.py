"""What goes wrong in the warden costs the berth that it concerns and no other; and clearing up harms no stranger."""

import _socket
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.host import LIMITS
from springtide.core.errors import InvalidEpisodeError
from springtide.ports.sandbox import CommandEnd, SandboxLevel
from springtide.sandbox import LevelReport, SandboxConfig, probe, wire
from springtide.sandbox.channel import Reply
from springtide.sandbox.linux import LinuxSandbox
from springtide.sandbox.warden import boot, unsafe
from springtide.sandbox.warden.cgroups import GroupTree
from springtide.sandbox.warden.owner import own_name
from springtide.sandbox.warden.unsafe import remove_tree
from springtide.sandbox.warden.warden import Warden, _remove_quietly

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def warden() -> Iterator[tuple[Warden, _socket.socket]]:
    """One that runs here, and the trainer's end of its control socket."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    yield Warden(control=theirs.detach(), boot=""), ours
    ours.close()


def fail(*_: object) -> int:
    raise OSError(11, "Resource temporarily unavailable")


@pytest.mark.parametrize("missing", ["fork", "group", "pidfd"])
def test_a_berth_that_cannot_be_made_is_told_and_leaves_nothing(
    warden: tuple[Warden, _socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    made, ours = warden
    made._groups = GroupTree(1, {"memory": str(tmp_path)})
    made._level = "namespaces"
    if missing == "group":
        (tmp_path / "1").mkdir()
    elif missing == "fork":
        monkeypatch.setattr(os, "fork", fail)
    else:
        killed: list[int] = []
        monkeypatch.setattr(os, "fork", lambda: 4321)
        monkeypatch.setattr(os, "pidfd_open", fail)
        monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
        monkeypatch.setattr(os, "waitpid", lambda pid, _: (pid, 9))
    socket = os.open("/dev/null", os.O_RDONLY)
    made._provide_berth(7, [socket])
    told = Reply.parse(ours.recv(4096))
    assert (told.kind, told.end, told.code) == (wire.ENDED, "sandbox_error", 7)
    assert ("exists" if missing == "group" else "unavailable") in told.detail
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(socket)
    assert not (tmp_path / "1").exists(), "the group is gone"
    if missing == "pidfd":
        assert killed == [4321], "what was forked already is not left to serve"


def test_a_socket_that_does_not_arrive_costs_its_berth(warden: tuple[Warden, _socket.socket]) -> None:
    made, ours = warden
    made._provide_berth(3, [])
    assert "did not arrive" in Reply.parse(ours.recv(4096)).detail


ENDED_TOGETHER = """
import sys
sys.path.insert(0, {folder!r})
import boot
boot._enter_packages()
import _socket, os, select
from springtide.sandbox.warden.cgroups import Group
from springtide.sandbox.warden.warden import Warden, _Berth

ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
warden = Warden(control=theirs.detach(), boot="")
for number in range(3):
    pid = os.fork()
    if pid == 0:
        os._exit(4)
    berth = warden._berths[number] = _Berth(number, pid, Group(1, {{}}), "/nonexistent")
    warden._poll.register(berth.ended, select.POLLIN)
berths = list(warden._berths.values())
for berth in berths:
    poll = select.poll()
    poll.register(berth.ended)
    poll.poll()
for berth in berths:
    warden._collect(berth)
berths[0].kill()
for berth in berths[:2]:
    warden._bury(berth.ended)
warden._clear_up()
told = [ours.recv(4096) for _ in berths[:2]]
print(len(told), [berth.status for berth in berths])
"""


def test_berths_that_end_together_are_buried_one_by_one() -> None:
    """Waiting for one collects others, whose numbers may be a stranger's by then: they get no signal."""
    script = ENDED_TOGETHER.format(folder=str(Path(boot.__file__).parent))
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2 [1024, 1024, 1024]\n", "")


def stand_in_the_way(warden: int) -> None:
    """Make the group that the next berth of this warden would have."""
    groups = next(path for path in Path("/sys/fs/cgroup").glob("**/springtide-*/") if f"-{warden}-" in path.name)
    last = max(int(path.name) for path in groups.iterdir() if path.name.isdecimal())
    (groups / str(last + 1)).mkdir()


def test_a_box_that_cannot_be_made_leaves_the_others(reports: dict[SandboxLevel, LevelReport], run: Run) -> None:
    if not reports[SandboxLevel.NAMESPACES].usable:
        pytest.skip(f"no namespaces on this host: {reports[SandboxLevel.NAMESPACES].reason}")

    async def story() -> None:
        sandbox = LinuxSandbox(SandboxConfig(level="namespaces"))
        await sandbox.start()
        box = await sandbox.open(files={}, limits=LIMITS)
        assert sandbox._warden is not None
        stand_in_the_way(sandbox._warden._process.pid)
        with pytest.raises(InvalidEpisodeError, match=r"no box could be opened: .*File exists") as raised:
            await sandbox.open(files={}, limits=LIMITS)
        assert raised.value.cause == "infrastructure"
        assert (await box.run("echo here")).output == b"here\n"
        again = await sandbox.open(files={}, limits=LIMITS)
        assert (await again.run("true")).end is CommandEnd.OK
        await sandbox.close()

    run(story())


def test_a_folder_of_untrusted_content_is_removed_whatever_is_in_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    tree = tmp_path / "tree"
    (tree / "a/b/c").mkdir(parents=True)
    (tree / "a/link").symlink_to(outside)
    (tree / "a/b/file").symlink_to(outside / "kept")
    os.mkfifo(tree / "a/b/pipe")
    (tree / "a/b").chmod(0)
    remove_tree(str(tree))
    remove_tree(str(tree))
    assert not tree.exists()
    (tmp_path / "link").symlink_to(outside)
    remove_tree(str(tmp_path / "link"))
    assert (outside / "kept").read_text() == "x"
    assert list(tmp_path.iterdir()) == [outside]


def test_no_depth_is_too_deep_to_remove(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    here = os.open(tree, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    remove_tree(str(tree))
    assert not tree.exists()


def test_a_link_that_takes_a_folders_place_meanwhile_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    (tree / "folder").mkdir(parents=True)
    outside.mkdir()
    (outside / "kept").write_text("x")
    listed = os.listdir

    def swap(folder: int) -> list[str]:
        found = listed(folder)
        if found == ["folder"]:
            (tree / "folder").rmdir()
            (tree / "folder").symlink_to(outside)
        return found

    monkeypatch.setattr(unsafe.os, "listdir", swap)
    remove_tree(str(tree))
    assert not tree.exists()
    assert (outside / "kept").read_text() == "x"


def test_what_cannot_be_cleared_away_stops_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("springtide.sandbox.warden.warden.remove_tree", fail)
    _remove_quietly("/tmp/whatever")


def test_a_strangers_folder_in_the_way_stops_no_sandbox() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    prefix, namespace, _, _ = own_name().split("-")
    strange, ours = (Path(f"/tmp/{prefix}-{namespace}-99999999-{number}") for number in (1, 2))
    for folder in (strange, ours):
        (folder / "inner").mkdir(parents=True)
    os.chown(strange, 12345, 12345)
    try:
        assert any(report.usable for report in probe())
        assert (strange / "inner").exists()
        assert not ours.exists()
    finally:
        remove_tree(str(strange))
