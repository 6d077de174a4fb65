"""Compute. All work that could block the event loop goes through a lane."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

Ended = Callable[[str, str, float], None]
"""Told of a piece of work that has ended without an error: its lane, its name, and the seconds that it took."""


class Executor(Protocol):
    async def run(self, lane: str, work: Callable[[], T], *, name: str) -> T:
        """Run `work` on `lane`, one piece at a time in submission order; its wall time is booked under bin `name`.

        On the wall clock a lane is one thread. On the virtual clock the work runs inline and its modelled cost is
        slept. Exceptions of `work` are raised here.
        """
        ...

    def subscribe(self, ended: Ended) -> None:
        """`ended` is called after each piece of work, on the loop, before whoever waits for the work goes on."""
        ...

    def give_up(self, lane: str) -> None:
        """Nobody waits any more for what runs on `lane` (it is cancelled next): it was for nothing, and later work does
        not wait for it either."""
        ...

    async def close(self) -> None: ...
