"""An event loop whose time jumps to the next timer.

It refuses threads, sockets and subprocesses: whatever runs on it is deterministic. It can be killed after any number
of callbacks, which is a kill at any await point.
"""

import asyncio
import math
from asyncio import base_events
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


class Killed(KeyboardInterrupt):
    """The process died here. A KeyboardInterrupt, because the loop lets only that pass through a callback."""


class StuckError(RuntimeError):
    """Everything waits and no timer is set."""


class _Jump:
    """Stands where a selector would: instead of waiting, it moves the clock."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise StuckError("Every task waits and no timer is set.")
        self._loop.jump(timeout)
        return []


class VirtualLoop(base_events.BaseEventLoop):
    """`kill_after` callbacks it raises `Killed`; `callbacks` counts them."""

    def __init__(self, *, kill_after: int | None = None) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = _Jump(self)
        self._kill_after = kill_after
        self.callbacks = 0
        self._finest: float = self._clock_resolution

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += max(seconds, 0.0)
        # What is due now counts as due only if adding the resolution makes a difference: after months it would not.
        self._clock_resolution = max(self._finest, math.ulp(self._now))

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _count(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> None:
            if self._kill_after is not None and self.callbacks >= self._kill_after:
                raise Killed
            self.callbacks += 1
            callback(*args)

        return counted

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        return super().call_soon(self._count(callback), *args, context=context)

    def bury(self) -> None:
        """Drop all tasks without running anything further on this loop."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            assert coroutine is not None
            # a finally-block that awaits cannot be honoured: the process it belongs to is dead
            with suppress(RuntimeError):
                coroutine.close()
        self.close()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("The virtual loop has no threads: go through the Executor port.")

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("The virtual loop has no threads.")


def run_virtual(main: Callable[[], Coroutine[Any, Any, T]], *, kill_after: int | None = None) -> tuple[T, VirtualLoop]:
    """Run `main()` on a fresh virtual loop. On `Killed` everything is left as a dead process leaves it.

    Returns the result and the loop (its time and callback count).
    """
    loop = VirtualLoop(kill_after=kill_after)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main()), loop
    finally:
        loop.bury()
        asyncio.set_event_loop(None)
