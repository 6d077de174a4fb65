"""The clock of the running event loop: real on a real loop, virtual on a virtual one."""

import asyncio


class LoopClock:
    """Implements the Clock port on whatever loop runs it."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
