"""The clock of an event loop: real on a real loop, virtual on a virtual one."""

import asyncio


class LoopClock:
    """Implements the Clock port on the loop that is running when it is made. `now` works from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
