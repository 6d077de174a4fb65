import asyncio
import time

from springtide.simulation.emulation import run_emulated


def test_timers_keep_their_order_and_the_clock_runs_ahead_of_the_walls():
    async def main():
        loop = asyncio.get_running_loop()
        begin, order = loop.time(), []
        wall = time.monotonic()

        async def sleep(seconds):
            await asyncio.sleep(seconds)
            order.append((seconds, loop.time() - begin >= seconds))

        await asyncio.gather(*(sleep(seconds) for seconds in (30.0, 10.0, 20.0)))
        return order, (loop.time() - begin) / (time.monotonic() - wall)

    order, speed = run_emulated(main, speed=1000.0)
    assert order == [(10.0, True), (20.0, True), (30.0, True)]
    assert 900 < speed < 1100, "by construction: both read the same clock"
