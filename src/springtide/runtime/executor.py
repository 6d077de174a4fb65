"""Compute on the wall clock: one thread per lane, every second of it in the ledger."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from springtide.telemetry.ledger import Ledger

T = TypeVar("T")


class ThreadExecutor:
    """Implements the Executor port. `on_lane_start` runs once in each new lane's thread (thread counts)."""

    def __init__(self, ledger: Ledger, *, on_lane_start: Callable[[str], None] | None = None) -> None:
        self._ledger = ledger
        self._on_lane_start = on_lane_start or (lambda lane: None)
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def _pool(self, lane: str) -> ThreadPoolExecutor:
        if lane not in self._pools:
            self._pools[lane] = ThreadPoolExecutor(
                max_workers=1, thread_name_prefix=f"lane-{lane}", initializer=self._on_lane_start, initargs=(lane,)
            )
        return self._pools[lane]

    async def run(self, lane: str, work: Callable[[], T], *, name: str) -> T:
        ledger = self._ledger.lane(lane)

        def timed() -> T:
            with ledger.bin(name):
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._pool(lane), timed)

    def give_up(self, lane: str) -> None:
        """The thread is left to itself; the lane gets another."""
        pool = self._pools.pop(lane, None)
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    async def close(self) -> None:
        """Wait for the work that runs; drop what is queued."""
        loop = asyncio.get_running_loop()
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            await loop.run_in_executor(None, partial(pool.shutdown, wait=True, cancel_futures=True))
