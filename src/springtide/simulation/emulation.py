"""Modelled ranks in real time (L1): the same run with real sleeps, so that what the controller itself takes counts too.

The loop's clock may run faster than the wall's, and everything on it with it: an hour of a cluster in minutes.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Hurried(selectors.DefaultSelector):
    """Waits as long as the loop's seconds take on the wall."""

    def __init__(self, speed: float) -> None:
        super().__init__()
        self._speed = speed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(None if timeout is None else timeout / self._speed)


class EmulatedLoop(asyncio.SelectorEventLoop):
    """An event loop of which `speed` seconds pass in one."""

    def __init__(self, *, speed: float) -> None:
        self._speed = speed
        self._begun = time.monotonic()
        super().__init__(_Hurried(speed))

    def time(self) -> float:
        return (time.monotonic() - self._begun) * self._speed


def run_emulated(main: Callable[[], Coroutine[Any, Any, T]], *, speed: float = 1.0) -> T:
    """Run `main` to its end, `speed` times as fast as the wall's clock."""
    with asyncio.Runner(loop_factory=lambda: EmulatedLoop(speed=speed)) as runner:
        return runner.run(main())
