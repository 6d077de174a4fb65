"""However the trainer or the warden ends, nothing of any box is left on the host."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.host import LIMITS, await_gone, descendants, kill_quietly, leftovers
from sandbox.trainer import PROCESSES
from springtide.core.errors import InvalidEpisodeError
from springtide.ports.sandbox import CommandEnd, SandboxLevel
from springtide.sandbox import LevelReport, SandboxConfig, probe
from springtide.sandbox.linux import LinuxSandbox

Run = Callable[[Coroutine[Any, Any, Any]], Any]
ALL_LEVELS = ["namespaces", "user_namespaces", "bubblewrap", "landlock", "none"]


@pytest.fixture
def usable(reports: dict[SandboxLevel, LevelReport]) -> Callable[[str], None]:
    def check(level: str) -> None:
        report = reports[SandboxLevel(level)]
        if not report.usable:
            pytest.skip(f"no {level} on this host: {report.reason}")

    return check


@contextmanager
def trainer(level: str, *arguments: str) -> Iterator[tuple[int, set[int], int]]:
    """A trainer with stubborn processes in its boxes: its pid, its descendants, and which of them is the warden."""
    path = str(Path(__file__).with_name("trainer.py"))
    process = subprocess.Popen([sys.executable, path, level, *arguments], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while sum(name(pid) == "sleep" for pid in descendants(process.pid)) < PROCESSES:
            assert process.poll() is None
            assert time.monotonic() < deadline, "the stand-in did not start"
            time.sleep(0.02)
        family = descendants(process.pid)
        yield process.pid, family, next(pid for pid in sorted(family) if name(pid) == "springtide-ward")
    finally:
        process.kill()
        process.wait()


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_nothing_is_left_of_a_killed_trainer(level: str, usable: Callable[[str], None]) -> None:
    usable(level)
    with trainer(level) as (pid, family, _):
        os.kill(pid, 9)
        assert await_gone(family) == set()
    assert leftovers() == set()


def test_a_fork_of_the_trainer_that_lives_on_does_not_keep_the_boxes(usable: Callable[[str], None]) -> None:
    usable("namespaces")
    with trainer("namespaces", "fork") as (pid, family, _):
        fork = next(child for child in family if name(child).startswith("python"))
        try:
            os.kill(pid, 9)
            assert await_gone(family - {fork}) == set()
        finally:
            kill_quietly(fork)
    assert leftovers() == set()


@pytest.mark.parametrize("level", ["namespaces", "user_namespaces"])
def test_the_next_start_clears_what_a_killed_warden_left(level: str, usable: Callable[[str], None]) -> None:
    usable(level)
    with trainer(level) as (pid, family, warden):
        os.kill(warden, 9)
        os.kill(pid, 9)
        assert await_gone(family) == set()
    probe()
    assert leftovers() == set()


def test_a_live_owner_is_left_alone(usable: Callable[[str], None]) -> None:
    usable("namespaces")
    with trainer("namespaces") as (_, family, _):
        probe()
        assert descendants(os.getpid()) >= family


@pytest.mark.parametrize("reopened", [True, False])
def test_a_killed_warden_costs_its_boxes_and_no_more(usable: Callable[[str], None], run: Run, reopened: bool) -> None:
    usable("namespaces")

    async def story() -> None:
        older = descendants(os.getpid())
        sandbox = LinuxSandbox(SandboxConfig(level="namespaces"))
        await sandbox.start()
        box = await sandbox.open(files={}, limits=LIMITS)
        os.kill(min(descendants(os.getpid()) - older), 9)
        with pytest.raises(InvalidEpisodeError, match="the warden ended"):
            await box.run("sleep 60", wall_seconds=60)
        await box.close()
        if reopened:
            again = await sandbox.open(files={"f": b"new"}, limits=LIMITS)
            assert (await again.run("cat f")).output == b"new"
        await sandbox.close()

    run(story())
    assert leftovers() == set()


def test_a_box_whose_first_process_dies_is_invalid_and_replaced(
    usable: Callable[[str], None], open_level: Callable[[str], LinuxSandbox], run: Run
) -> None:
    sandbox = open_level("namespaces")

    async def story() -> None:
        older = descendants(os.getpid())
        box = await sandbox.open(files={}, limits=LIMITS)
        first = max(pid for pid in descendants(os.getpid()) - older if name(pid) == "springtide-ward")
        os.kill(first, 9)
        with pytest.raises(InvalidEpisodeError, match="ended unexpectedly") as raised:
            await box.run("sleep 60", wall_seconds=60)
        assert raised.value.cause == "infrastructure"
        await box.close()
        again = await sandbox.open(files={}, limits=LIMITS)
        assert (await again.run("true")).end is CommandEnd.OK
        await again.close()

    run(story())


def test_a_box_that_its_memory_limit_took_is_the_agents_doing(
    usable: Callable[[str], None], open_level: Callable[[str], LinuxSandbox], run: Run
) -> None:
    sandbox = open_level("namespaces")

    async def story() -> None:
        older = descendants(os.getpid())
        box = await sandbox.open(files={}, limits=LIMITS)
        assert (await box.run("head -c 200m /dev/zero | tail -c 200m")).end is CommandEnd.OOM
        first = max(pid for pid in descendants(os.getpid()) - older if name(pid) == "springtide-ward")
        os.kill(first, 9)
        for _ in range(2):
            assert (await box.run("sleep 60", wall_seconds=60)).end is CommandEnd.OOM
        with pytest.raises(OSError, match="memory limit"):
            await box.write({"f": b""})
        assert await box.read("f") is None
        await box.close()

    run(story())


def test_closing_the_sandbox_ends_boxes_at_work(usable: Callable[[str], None], run: Run) -> None:
    usable("namespaces")

    async def story() -> None:
        sandbox = LinuxSandbox(SandboxConfig(level="namespaces"))
        await sandbox.start()
        boxes = [await sandbox.open(files={}, limits=LIMITS) for _ in range(3)]
        work = [asyncio.create_task(box.run("echo up > up; sleep 60")) for box in boxes]
        await asyncio.sleep(0.05)
        await sandbox.close()
        ends = await asyncio.gather(*work, return_exceptions=True)
        assert all(isinstance(end, InvalidEpisodeError) for end in ends)
        for box in boxes:
            await box.close()

    run(story())
    assert leftovers() == set()
