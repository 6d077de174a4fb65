"""Compute on the wall clock: one thread per lane, every second of it in the ledger."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from springtide.ports.executor import Ended
from springtide.telemetry.ledger import Ledger

T = TypeVar("T")


class ThreadExecutor:
    """Implements the Executor port. `on_lane_start` runs once in each new lane's thread (thread counts)."""

    def __init__(self, ledger: Ledger, *, on_lane_start: Callable[[str], None] | None = None) -> None:
        self._ledger = ledger
        self._on_lane_start = on_lane_start or (lambda lane: None)
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._subscribers: list[Ended] = []

    def subscribe(self, ended: Ended) -> None:
        self._subscribers.append(ended)

    def _pool(self, lane: str) -> ThreadPoolExecutor:
        if lane not in self._pools:
            self._pools[lane] = ThreadPoolExecutor(
                max_workers=1, thread_name_prefix=f"lane-{lane}", initializer=self._on_lane_start, initargs=(lane,)
            )
        return self._pools[lane]

    async def run(self, lane: str, work: Callable[[], T], *, name: str) -> T:
        ledger = self._ledger.lane(lane)

        def timed() -> tuple[T, float]:
            with ledger.bin(name):
                started = time.perf_counter()
                result = work()
                return result, time.perf_counter() - started

        result, seconds = await asyncio.get_running_loop().run_in_executor(self._pool(lane), timed)
        for ended in self._subscribers:
            ended(lane, name, seconds)
        return result

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
