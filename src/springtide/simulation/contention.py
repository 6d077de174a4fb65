"""Rollout and training on the cores of one host: each takes longer while the other computes.

How much longer is measured (`launch/measurement.py`): caches, memory bandwidth and the interpreter's lock are shared
even where there are cores enough.
"""

import asyncio
import math
from collections.abc import Callable

from pydantic import Field

from springtide.scheduling.config import StrictModel

TRAINER = "trainer"
"""The training ranks' lane; all others that compute are ranks in rollout."""

DONE = 1e-9
"""Seconds of work that are rounding. After months on a clock more are: what is too little to move it is done."""


class Contention(StrictModel):
    rollout: float = Field(1.0, ge=1, description="By what factor rollout takes longer while the trainer computes.")
    training: float = Field(1.0, ge=1, description="By what factor training takes longer while an engine computes.")


class CoreSharing:
    """Spends the time of work. What is left of a piece passes the slower while the other side computes too."""

    def __init__(self, contention: Contention, now: Callable[[], float]) -> None:
        self._contention = contention
        self._now = now
        self._active: dict[str, None] = {}
        self._change: asyncio.Future[None] | None = None

    async def spend(self, lane: str, seconds: float) -> float:
        """Of work that takes `seconds` alone; the seconds that it has taken."""
        begun, left = self._now(), seconds
        if left <= DONE:
            await asyncio.sleep(left)
            return self._now() - begun
        self._active[lane] = None
        self._changed()
        try:
            while left > max(DONE, 2 * math.ulp(self._now())):
                since, slowdown = self._now(), self._slowdown(lane)
                await asyncio.wait([self._next_change()], timeout=left * slowdown)
                left -= (self._now() - since) / slowdown
        finally:
            del self._active[lane]
            self._changed()
        return self._now() - begun

    def _slowdown(self, lane: str) -> float:
        if lane == TRAINER:
            return self._contention.training if len(self._active) > 1 else 1.0
        return self._contention.rollout if TRAINER in self._active else 1.0

    def _next_change(self) -> asyncio.Future[None]:
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
        return self._change

    def _changed(self) -> None:
        """What computes is no longer the same: everybody looks anew at how fast it goes."""
        if self._change is not None and not self._change.done():
            self._change.set_result(None)
        self._change = None
