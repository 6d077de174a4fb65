"""Modelled ranks in real time (L1): the same run with real sleeps, so that what the controller itself takes counts too.

The loop's clock may run faster than the wall's, and everything on it with it: an hour of a cluster in minutes.

A process that sleeps is woken up late, by a fraction of a millisecond on an idle machine and by whole scheduler ticks
on one with other work. That is no part of what is emulated: a rank at work is no process that has to be woken up, and
as one visit follows the other, the lateness of all of them would add up. So the loop's clock stands still from when a
timer was due to when the process gets to run; all that the process itself does is counted.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Hurried(selectors.SelectSelector):
    """Waits as long as the loop's seconds take on the wall, to the microsecond: epoll, the default, rounds waits up to
    whole milliseconds. `late` is by how many seconds of the wall's clock it came back after timers were due.
    """

    def __init__(self, speed: float) -> None:
        super().__init__()
        self._speed = speed
        self.late = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        due = time.monotonic() + timeout / self._speed
        ready = super().select(timeout / self._speed)
        if not ready:
            self.late += max(0.0, time.monotonic() - due)
        return ready


class EmulatedLoop(asyncio.SelectorEventLoop):
    """An event loop of which `speed` seconds pass in one."""

    def __init__(self, *, speed: float) -> None:
        self._speed = speed
        self._begun = time.monotonic()
        self._hurried = _Hurried(speed)
        super().__init__(self._hurried)

    def time(self) -> float:
        return (time.monotonic() - self._begun - self._hurried.late) * self._speed

    @property
    def late(self) -> float:
        """Seconds of the wall's time for which the clock has stood still."""
        return self._hurried.late


def run_emulated(main: Callable[[], Coroutine[Any, Any, T]], *, speed: float = 1.0) -> T:
    """Run `main` to its end, `speed` times as fast as the wall's clock."""
    with asyncio.Runner(loop_factory=lambda: EmulatedLoop(speed=speed)) as runner:
        return runner.run(main())
