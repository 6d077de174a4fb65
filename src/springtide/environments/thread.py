"""Blocking hooks, each on a thread of its own.

A hook that never returns then keeps no other hook waiting for a thread, and does not keep the process from ending.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def on_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises. Cancelled, it leaves `work` behind: nothing can stop a thread."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            report = _unless_done(outcome, outcome.set_result, work())
        except StopIteration as error:  # no future takes it
            report = _unless_done(outcome, outcome.set_exception, RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:
            report = _unless_done(outcome, outcome.set_exception, error)
        with suppress(RuntimeError):  # the loop may be gone by now
            loop.call_soon_threadsafe(report)

    threading.Thread(target=run, name="environment", daemon=True).start()
    return await outcome


def _unless_done(outcome: asyncio.Future[Any], settle: Callable[[Any], None], value: Any) -> Callable[[], None]:
    return lambda: None if outcome.done() else settle(value)
