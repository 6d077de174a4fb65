"""Boxes among each other, one after the other, and when a call on one is cut off."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sandbox.host import LIMITS
from springtide.core.errors import InvalidEpisodeError
from springtide.ports.sandbox import Box, CommandEnd, SandboxLevel
from springtide.sandbox.linux import LinuxSandbox

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def test_boxes_at_the_same_time_see_nothing_of_each_other(sandbox: LinuxSandbox, run: Run) -> None:
    async def live(number: int) -> None:
        box = await sandbox.open(files={"who": b"%d\n" % number}, limits=LIMITS)
        await box.run(f"echo {number} > /tmp/shared; echo {number} > /var/tmp/shared")
        await asyncio.sleep(0)
        seen = await box.run(
            "cat who /tmp/shared /var/tmp/shared; ls /proc | grep -cE '^[0-9]+$'; kill -9 -1; echo alive"
        )
        assert seen.output.split()[:3] == [b"%d" % number] * 3
        assert int(seen.output.split()[3]) <= 5
        await box.close()

    async def crowd() -> None:
        await asyncio.gather(*(live(number) for number in range(16)))

    run(crowd())


_LISTEN = """
import socket, time
server = socket.socket(socket.AF_UNIX)
server.bind(chr(0) + "meet")
server.listen()
socket.socket(socket.AF_UNIX).connect(chr(0) + "meet")
print(time.monotonic(), flush=True)
time.sleep({seconds})
print(time.monotonic())
"""
_CONNECT = """
import socket, time
print(time.monotonic())
socket.socket(socket.AF_UNIX).connect(chr(0) + "meet")
"""


def test_channels_between_boxes_are_cut(sandbox: LinuxSandbox, run: Run) -> None:
    share = "import ctypes;print(ctypes.CDLL(None,use_errno=True).shmget(4242,4096,{flags}))"

    async def refused_in_time(one: Box, two: Box, seconds: float) -> bool:
        """Box two is refused, each time it tries, what answers in box one; was it while that listened?"""
        host = asyncio.create_task(one.run("python3 -", stdin=_LISTEN.format(seconds=seconds).encode()))
        tries = []
        while not host.done():
            output = (await two.run("python3 -", stdin=_CONNECT.encode())).output
            assert b"ConnectionRefused" in output
            tries.append(float(output.split()[0]))
        begin, end = map(float, (await host).output.split())
        return any(begin < tried < end for tried in tries)

    async def story() -> None:
        one, two = [await sandbox.open(files={}, limits=LIMITS) for _ in range(2)]
        if (await one.run("python3 -c pass")).end is not CommandEnd.OK:
            pytest.skip("there is no python3 in the box")
        made = await one.run(f'python3 -c "{share.format(flags="0o1666")}"')
        assert int(made.output) >= 0 or "memory" not in sandbox.limits_by
        assert (await two.run(f'python3 -c "{share.format(flags=0)}"')).output == b"-1\n"
        assert await refused_in_time(one, two, 0.5) or await refused_in_time(one, two, 10.0)
        for box in (one, two):
            await box.close()

    run(story())


def test_a_closed_box_leaves_nothing_to_the_next(sandbox: LinuxSandbox, run: Run) -> None:
    async def look(command: str, files: dict[str, bytes]) -> bytes:
        box = await sandbox.open(files=files, limits=LIMITS)
        output = (await box.run(command)).output
        await box.close()
        return output

    async def story() -> None:
        everything = (
            "find /work /tmp /var /run /dev /etc /proc/sysvipc ! -path '/proc/*' -print | sort; cat /proc/sysvipc/shm"
        )
        clean = await look(everything, {})
        await look("touch a /tmp/b /var/tmp/c; mkdir /tmp/d; (sleep 300 &); ipcmk -M 4096; umask 0; :", {"e/f": b"x"})
        assert await look(everything, {}) == clean
        assert await look("cat e/f 2>&1; echo $$", {"g": b""}) == b"cat: e/f: No such file or directory\n2\n"

    run(story())


def test_the_level_is_in_every_result(box: Box, sandbox: LinuxSandbox, run: Run) -> None:
    assert run(box.run("true")).level is sandbox.level
    assert sandbox.level in (SandboxLevel.NAMESPACES, SandboxLevel.USER_NAMESPACES, SandboxLevel.BUBBLEWRAP)


def test_a_call_that_is_cut_off_ends_its_box_and_not_the_next(sandbox: LinuxSandbox, run: Run) -> None:
    async def story() -> None:
        box = await sandbox.open(files={}, limits=LIMITS)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(box.run("sleep 60", wall_seconds=60), 0.05)
        with pytest.raises(InvalidEpisodeError, match="cut off"):
            await box.run("true")
        await box.close()
        await box.close()
        again = await sandbox.open(files={"f": b"x"}, limits=LIMITS)
        assert (await again.run("cat f")).output == b"x"
        await again.close()
        with pytest.raises(InvalidEpisodeError, match="after it was closed"):
            await again.run("true")

    run(story())


def test_closing_cuts_off_a_call_in_progress(sandbox: LinuxSandbox, run: Run) -> None:
    async def story() -> None:
        box = await sandbox.open(files={}, limits=LIMITS)
        work = asyncio.create_task(box.run("sleep 60", wall_seconds=60))
        await asyncio.sleep(0.05)
        await box.close()
        with pytest.raises(InvalidEpisodeError, match="closed while a call"):
            await work

    run(story())


def test_calls_on_one_box_take_turns(box: Box, run: Run) -> None:
    async def story() -> None:
        results = await asyncio.gather(*(box.run(f"echo {n} >> log; sleep 0.02; tail -n 1 log") for n in range(5)))
        assert [int(result.output) for result in results] == list(range(5))

    run(story())


def test_first_files_that_do_not_fit_are_told(sandbox: LinuxSandbox, run: Run) -> None:
    async def story() -> None:
        with pytest.raises(InvalidEpisodeError, match="big: No space left"):
            await sandbox.open(files={"big": bytes(LIMITS.disk_bytes + 4096)}, limits=LIMITS)
        with pytest.raises(ValueError, match="must be relative"):
            await sandbox.open(files={"../x": b""}, limits=LIMITS)
        box = await sandbox.open(files={"fits": bytes(LIMITS.disk_bytes // 2)}, limits=LIMITS)
        assert (await box.run("wc -c < fits")).output.strip() == b"%d" % (LIMITS.disk_bytes // 2)
        await box.close()

    run(story())
