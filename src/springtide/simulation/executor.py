"""Compute on the virtual clock: inline, then its modelled cost is slept."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from springtide.telemetry.ledger import Ledger

T = TypeVar("T")


class InlineExecutor:
    """Implements the Executor port. `cost(lane, name)` gives the seconds that a piece of work takes; they are booked
    as on the wall clock."""

    def __init__(self, cost: Callable[[str, str], float], ledger: Ledger) -> None:
        self._cost = cost
        self._ledger = ledger
        self._locks: dict[str, asyncio.Lock] = {}

    async def run(self, lane: str, work: Callable[[], T], *, name: str) -> T:
        async with self._locks.setdefault(lane, asyncio.Lock()):
            with self._ledger.lane(lane).bin(name):
                result = work()
                await asyncio.sleep(self._cost(lane, name))
            return result

    async def close(self) -> None:
        """Nothing to free."""
