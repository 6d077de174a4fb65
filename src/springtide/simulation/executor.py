"""Compute on the virtual clock: inline, then its modelled cost is slept."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class InlineExecutor:
    """Implements the Executor port. `cost(lane, name)` gives the seconds that a piece of work takes."""

    def __init__(self, cost: Callable[[str, str], float]) -> None:
        self._cost = cost
        self._locks: dict[str, asyncio.Lock] = {}

    async def run(self, lane: str, work: Callable[[], T], *, name: str) -> T:
        async with self._locks.setdefault(lane, asyncio.Lock()):
            result = work()
            await asyncio.sleep(self._cost(lane, name))
            return result

    async def close(self) -> None:
        """Nothing to free."""
