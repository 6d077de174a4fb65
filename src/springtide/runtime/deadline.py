"""A rank that owes an answer for too long is given up: it hangs, or what it said was lost on the way."""

import asyncio
from collections.abc import Callable, Iterable

from springtide.ports.clock import Clock

LEAST = 1e-3
"""Seconds between two looks."""


class Deadline:
    """`owed`: (rank, since) of everything that is waited for. `report` is told who is late, and may be told again until
    nothing is owed any more. `watch` runs beside everything else."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Clock,
        owed: Callable[[], Iterable[tuple[int, float]]],
        report: Callable[[int], None],
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._owed = owed
        self._report = report
        self._asked = asyncio.Event()

    def asked(self) -> None:
        """Something is owed from now on."""
        self._asked.set()

    async def watch(self) -> None:
        while True:
            now = self._clock.now()
            owed = sorted(self._owed())
            late = dict.fromkeys(rank for rank, since in owed if since + self._seconds <= now)
            for rank in late:
                self._report(rank)
            ahead = [since + self._seconds - now for rank, since in owed if rank not in late]
            if ahead:
                await self._clock.sleep(max(LEAST, min(ahead)))
            else:
                self._asked.clear()
                await self._asked.wait()
