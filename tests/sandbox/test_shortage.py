"""Whose lack of memory took a process: the box's own, which is the agent's doing, or the host's, which is not."""

import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sandbox.host import LIMITS, descendants
from springtide.core.errors import InvalidEpisodeError
from springtide.ports.sandbox import Box, CommandEnd, SandboxLevel
from springtide.sandbox import LevelReport, SandboxConfig
from springtide.sandbox.linux import LinuxSandbox
from springtide.sandbox.warden.berth import OUT_OF_MEMORY
from springtide.sandbox.warden.shortage import MemoryCounters, Shortage
from springtide.sandbox.warden.warden import _verdict

Run = Callable[[Coroutine[Any, Any, Any]], Any]
PAGE = os.sysconf("SC_PAGE_SIZE")
LIMIT = 1000 * PAGE
HUNGRY = "head -c 50m /dev/zero | tail -c 50m > /dev/null"


class Files:
    """A group's files, pretended, and counters on them."""

    def __init__(self, folder: Path, version: int, *, peaks: int = 2) -> None:
        self._folder = folder
        self.write("kills", "oom_kill 0")
        self.write("limit", str(LIMIT))
        for number in range(peaks):
            self.write(f"peak{number}", str(10 * PAGE))
        opened = {path.name: os.open(path, os.O_RDWR) for path in folder.iterdir()}
        found = tuple(opened[f"peak{number}"] for number in range(peaks))
        one = version == 1
        self.counters = MemoryCounters(opened["kills"], opened["limit"] if one else -1, found if one else ())

    def write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("events", "own", "foreign"),
    [
        ("max 9\noom 4\noom_kill 3", True, False),
        ("max 9\noom 2\noom_kill 3", False, True),
        ("max 9\noom 4\noom_kill 1", False, False),
    ],
)
def test_version_2_counts_how_often_the_limit_left_no_way_out(
    tmp_path: Path, events: str, own: bool, foreign: bool
) -> None:
    files = Files(tmp_path, 2)
    files.write("kills", "max 5\noom 2\noom_kill 1")
    files.counters.begin()
    files.write("kills", events)
    short = files.counters.since_begin()
    assert (short.own, short.foreign, short.met) == (own, foreign, 4)


@pytest.mark.parametrize(("peak", "own"), [(LIMIT, True), (LIMIT - 8 * PAGE, True), (LIMIT // 2, False)])
def test_version_1_looks_at_the_peak_since_the_beginning(tmp_path: Path, peak: int, own: bool) -> None:
    files = Files(tmp_path, 1)
    files.write("kills", "under_oom 0\noom_kill 7")
    files.write("peak0", str(LIMIT))
    files.counters.begin()
    assert (tmp_path / "peak0").read_text().startswith("0"), "the kernel starts a peak afresh that is written to"
    files.write("peak0", str(peak // 2))
    files.write("peak1", str(peak))
    files.write("kills", "under_oom 0\noom_kill 8")
    short = files.counters.since_begin()
    assert (short.kills, short.own, short.foreign) == (1, own, not own)


def test_where_nothing_tells_whose_limit_it_was_it_was_the_own(tmp_path: Path) -> None:
    files = Files(tmp_path, 1, peaks=0)
    files.counters.begin()
    files.write("kills", "oom_kill 2")
    assert files.counters.since_begin().own
    assert not MemoryCounters(-1).since_begin().own


@pytest.mark.parametrize(
    ("code", "short", "end"),
    [
        (OUT_OF_MEMORY, Shortage(), "oom"),
        (-9, Shortage(1, 1, 1), "oom"),
        (-9, Shortage(1, 0, 4), "sandbox_error"),
        (-9, Shortage(), "sandbox_error"),
        (4, Shortage(1, 1, 1), "sandbox_error"),
    ],
)
def test_the_end_of_a_berth_is_told_by_its_code_and_its_shortage(code: int, short: Shortage, end: str) -> None:
    assert _verdict(code, short)[0] == end
    assert ("the host, not the box" in _verdict(code, short)[1]) == short.foreign


@pytest.fixture
def own_sandbox(run: Run, reports: dict[SandboxLevel, LevelReport]) -> Iterator[LinuxSandbox]:
    """One of its own, whose groups a test may change."""
    if not reports[SandboxLevel.NAMESPACES].usable:
        pytest.skip(f"no namespaces on this host: {reports[SandboxLevel.NAMESPACES].reason}")
    sandbox = LinuxSandbox(SandboxConfig(level="namespaces"))
    run(sandbox.start())
    yield sandbox
    run(sandbox.close())


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def first_process(older: set[int]) -> int:
    """That of the box that was opened last."""
    return max(pid for pid in descendants(os.getpid()) - older if comm(pid) == "springtide-ward")


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def narrow(warden: int, size: int) -> None:
    """Give the group above a warden's berths less memory than they may have each, as a full container has."""
    groups = [path for path in Path("/sys/fs/cgroup").glob("*/springtide-*") if path.name.split("-")[2] == str(warden)]
    groups += [path for path in Path("/sys/fs/cgroup").glob("springtide-*") if path.name.split("-")[2] == str(warden)]
    for group in groups:
        for name in ("memory.limit_in_bytes", "memory.max"):
            if (group / name).exists():
                (group / name).write_text(str(size))


def test_a_command_that_fell_to_the_memory_of_the_host_says_nothing_about_the_agent(
    own_sandbox: LinuxSandbox, run: Run
) -> None:
    async def story() -> None:
        older = descendants(os.getpid())
        box = await own_sandbox.open(files={}, limits=LIMITS)
        berth = parent_of(first_process(older))
        assert (await box.run(HUNGRY)).end is CommandEnd.OK, "it fits in the box"
        narrow(parent_of(berth), 40 << 20)
        killed = await box.run(HUNGRY)
        assert killed.end is CommandEnd.SANDBOX_ERROR
        assert "the host, not the box, was out of memory" in killed.detail
        tolerant = await box.run(f"{HUNGRY}; echo fine")
        assert tolerant.end is CommandEnd.SANDBOX_ERROR, "what it went on with is not what would have been"
        narrow(parent_of(berth), 1 << 30)
        assert (await box.run("head -c 200m /dev/zero | tail -c 200m")).end is CommandEnd.OOM
        await box.close()

    run(story())


@pytest.mark.parametrize("killed", ["first process", "berth"])
def test_an_earlier_box_that_ran_out_of_memory_excuses_no_later_end(
    own_sandbox: LinuxSandbox, run: Run, killed: str
) -> None:
    async def lose(box: Box, pid: int) -> None:
        os.kill(pid, 9)
        with pytest.raises(InvalidEpisodeError, match="ended unexpectedly"):
            await box.run("sleep 60")
        await box.close()

    async def story() -> None:
        older = descendants(os.getpid())
        box = await own_sandbox.open(files={}, limits=LIMITS)
        berth = parent_of(first_process(older))
        assert (await box.run("head -c 200m /dev/zero | tail -c 200m")).end is CommandEnd.OOM
        await box.close()
        again = await own_sandbox.open(files={}, limits=msgspec.structs.replace(LIMITS, pids=8))
        first = first_process(older)
        assert parent_of(first) == berth, "it serves the next box"
        await lose(again, berth if killed == "berth" else first)

    run(story())
