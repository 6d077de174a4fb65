import asyncio
import selectors
import time

from springtide.simulation.emulation import run_emulated


def test_timers_keep_their_order_and_the_clock_runs_ahead_of_the_walls():
    async def main():
        loop = asyncio.get_running_loop()
        wall = time.monotonic()
        begin, order = loop.time(), []

        async def sleep(seconds):
            await asyncio.sleep(seconds)
            order.append((seconds, loop.time() - begin >= seconds))

        await asyncio.gather(*(sleep(seconds) for seconds in (30.0, 10.0, 20.0)))
        return order, loop.time() - begin, time.monotonic() - wall - loop.late

    order, seconds, walls = run_emulated(main, speed=1000.0)
    assert order == [(10.0, True), (20.0, True), (30.0, True)]
    assert 30.0 <= seconds <= 1000.0 * walls, "by construction: both read the same clock"


class Sleepy:
    """A selector that sleeps `late` seconds longer than it is told to."""

    def __init__(self, monkeypatch, late):
        select = selectors.SelectSelector.select

        def tardy(selector, timeout=None):
            ready = select(selector, timeout)
            if timeout is not None and timeout > 0:
                time.sleep(late)
            return ready

        monkeypatch.setattr(selectors.SelectSelector, "select", tardy)


def test_the_clock_stands_still_while_the_process_waits_to_be_woken_up(monkeypatch):
    Sleepy(monkeypatch, 0.02)

    async def main():
        loop = asyncio.get_running_loop()
        begin, late = loop.time(), loop.late
        for _ in range(5):
            await asyncio.sleep(1.0)
        return loop.time() - begin, loop.late - late

    seconds, late = run_emulated(main, speed=1000.0)
    assert late >= 5 * 0.02
    assert seconds < 5 * 0.02 * 1000.0, "what was slept too long is on no clock"


def test_what_the_process_itself_does_counts():
    async def main():
        loop = asyncio.get_running_loop()
        begin = loop.time()
        wall = time.monotonic()
        while time.monotonic() < wall + 0.01:
            pass
        return loop.time() - begin

    assert run_emulated(main, speed=1000.0) >= 10.0
