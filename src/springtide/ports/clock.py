"""Time. On the wall clock real, on the virtual clock jumping to the next timer."""

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds on a monotonic clock with an arbitrary zero."""
        ...

    async def sleep(self, seconds: float) -> None: ...
