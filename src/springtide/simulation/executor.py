"""Compute that is modelled: done inline, then its cost is slept. On the virtual clock that is a jump; on the wall clock
it emulates."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from springtide.ports.executor import Ended
from springtide.simulation.contention import CoreSharing
from springtide.telemetry.ledger import Ledger

T = TypeVar("T")

Cost = Callable[[str, str], float | Mapping[str, float]]
"""Seconds that the work `name` on a lane has taken, as one number or by bin of the ledger. Asked after the work."""


class Watch(Protocol):
    """Told of the work of all lanes."""

    def begun(self, lane: str, name: str, cost: float | Mapping[str, float]) -> None:
        """A piece of work begins, and what it will take."""
        ...

    def broken_off(self, lane: str) -> None:
        """What the lane has begun last was for nothing."""
        ...


LOST = "lost"
"""The bin of work that was for nothing: its rank died before it was done."""


class InlineExecutor:
    """Implements the Executor port. What work costs is booked as on the wall clock; with `sharing` it takes longer
    while others compute."""

    def __init__(
        self, cost: Cost, ledger: Ledger, *, watch: Watch | None = None, sharing: CoreSharing | None = None
    ) -> None:
        self._cost = cost
        self._ledger = ledger
        self._watch = watch
        self._sharing = sharing
        self._locks: dict[str, asyncio.Lock] = {}
        self._given_up: dict[str, None] = {}
        self._subscribers: list[Ended] = []

    def subscribe(self, ended: Ended) -> None:
        self._subscribers.append(ended)

    async def run(self, lane: str, work: Callable[[], T], *, name: str) -> T:
        lock = self._locks.get(lane)
        if lock is None:
            lock = self._locks[lane] = asyncio.Lock()
        async with lock:
            books = self._ledger.lane(lane)
            self._given_up.pop(lane, None)
            begun = asyncio.get_running_loop().time()
            with books.bin(name):
                result = work()
                cost = self._cost(lane, name)
                if self._watch is not None:
                    self._watch.begun(lane, name, cost)
                seconds = cost if isinstance(cost, float | int) else sum(cost.values())
                try:
                    longer = await self._spend(lane, seconds)
                except asyncio.CancelledError:
                    if lane in self._given_up:
                        books.split(name, {LOST: asyncio.get_running_loop().time() - begun})
                        if self._watch is not None:
                            self._watch.broken_off(lane)
                    raise
            if isinstance(cost, Mapping):
                books.split(name, {part: longer * spent for part, spent in cost.items()})
            for ended in self._subscribers:
                ended(lane, name, longer * seconds)
            return result

    async def _spend(self, lane: str, seconds: float) -> float:
        """By what factor it took longer than `seconds`."""
        if self._sharing is None:
            await asyncio.sleep(seconds)
            return 1.0
        taken = await self._sharing.spend(lane, seconds)
        return taken / seconds if seconds > 0 else 1.0

    def give_up(self, lane: str) -> None:
        self._given_up[lane] = None

    async def close(self) -> None:
        """Nothing to free."""
