import asyncio
import threading

import pytest

from springtide.simulation.virtual_loop import Killed, StuckError, run_virtual


async def three_days():
    await asyncio.sleep(3 * 86400)
    return asyncio.get_running_loop().time()


def test_time_jumps_to_the_next_timer():
    result, loop = run_virtual(three_days)
    assert result == 3 * 86400
    assert loop.time() == result


def test_order_follows_timers_not_creation():
    order = []

    async def note(delay):
        await asyncio.sleep(delay)
        order.append(delay)

    async def main():
        await asyncio.gather(note(3), note(1), note(2))

    run_virtual(main)
    assert order == [1, 2, 3]


def test_a_deadlock_is_an_error_not_a_hang():
    async def main():
        await asyncio.Event().wait()

    with pytest.raises(StuckError, match="no timer is set"):
        run_virtual(main)


@pytest.mark.parametrize(
    "escape",
    [
        lambda loop: loop.run_in_executor(None, threading.get_ident),
        lambda loop: loop.create_connection(asyncio.Protocol, "127.0.0.1", 1),
        lambda loop: loop.subprocess_exec(asyncio.SubprocessProtocol, "true"),
    ],
)
def test_threads_sockets_and_subprocesses_are_refused(escape):
    async def main():
        await escape(asyncio.get_running_loop())

    with pytest.raises((RuntimeError, NotImplementedError)):
        run_virtual(main)


def test_a_kill_runs_no_finally_block_that_waits():
    written = []

    async def main():
        try:
            await asyncio.sleep(1)
            await asyncio.sleep(1)
        finally:
            await asyncio.sleep(1)
            written.append("after death")

    _, loop = run_virtual(main)
    assert written.pop() == "after death"
    for point in range(loop.callbacks // 2):
        with pytest.raises(Killed):
            run_virtual(main, kill_after=point)
    assert written == []


def test_timers_fire_however_late_it_is():
    async def main():
        for _ in range(3):
            await asyncio.sleep(1e9)
            await asyncio.sleep(1e-3)
        return asyncio.get_running_loop().time()

    assert run_virtual(main)[0] == pytest.approx(3e9)
