"""Episodes that take their turns in step with each other, as batched environments make them."""

import asyncio


class TurnBarrier:
    """Everybody who is in goes on when everybody who is in has arrived."""

    def __init__(self) -> None:
        self._inside = 0
        self._arrived: list[asyncio.Future[None]] = []

    def enter(self) -> None:
        self._inside += 1

    def leave(self) -> None:
        self._inside -= 1
        self._release()

    async def arrive(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrived.append(future)
        self._release()
        await future

    def _release(self) -> None:
        if len(self._arrived) < self._inside:
            return
        arrived, self._arrived = self._arrived, []
        for future in arrived:
            if not future.done():
                future.set_result(None)
