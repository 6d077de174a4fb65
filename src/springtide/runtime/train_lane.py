"""Train steps on the trainer's lane. A step that loses a rank is done again by those that are left, and ends once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from springtide.ports.executor import Executor
from springtide.runtime.crew import outlive

T = TypeVar("T")

LANE = "trainer"


class TrainLane:
    """`held`: no step can run, for want of ranks. `clear` is awaited before each: ranks end whatever else they do."""

    def __init__(self, executor: Executor, clear: Callable[[], Awaitable[None]]) -> None:
        self._executor = executor
        self._clear = clear
        self._ready = asyncio.Event()
        self._ready.set()
        self._step: asyncio.Task[object] | None = None

    @property
    def held(self) -> bool:
        return not self._ready.is_set()

    async def run(self, step: Callable[[], T]) -> T:
        """`step`, from its beginning for as often as a rank dies in it: it changes nothing before it has ended."""
        done: T | None = None
        while done is None:
            await self._ready.wait()
            await self._clear()
            task = asyncio.get_running_loop().create_task(self._executor.run(LANE, step, name="train"))
            self._step = task
            done = await outlive(task)
            self._step = None
        return done

    def hold(self) -> None:
        """A rank that trains has died: what is under way is lost, and nothing begins before `go_on`."""
        self._ready.clear()
        if self._step is not None:
            self._executor.give_up(LANE)
            self._step.cancel()

    def go_on(self) -> None:
        """The ranks that are left know of each other."""
        self._ready.set()
