"""One berth's socket, seen from the event loop: requests out, replies matched to them in order."""

import asyncio
import socket
from collections import deque
from typing import NamedTuple, Self

from springtide.sandbox import wire


class Reply(NamedTuple):
    kind: int
    end: str
    code: int
    seconds: float
    detail: str
    payload: bytes

    @classmethod
    def parse(cls, frame: bytes | bytearray) -> Self:
        kind, end, code, seconds, detail, payload = wire.REPLY.unpack_from(frame)
        middle = wire.REPLY.size + detail
        text = bytes(frame[wire.REPLY.size : middle]).decode(errors="replace")
        return cls(kind, wire.ENDS[end], code, seconds, text, bytes(frame[middle : middle + payload]))


class ChannelLostError(Exception):
    """The berth hung up before it answered."""


class Channel(asyncio.Protocol):
    """Replies come in the order of the requests, except that a request to close overtakes whatever is in progress."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lost = False
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = bytearray()
        self._pending: deque[asyncio.Future[Reply]] = deque()
        self._unclaimed: deque[Reply] = deque()

    @classmethod
    async def connect(cls, number: int, ours: socket.socket) -> "Channel":
        ours.setblocking(False)
        _, channel = await asyncio.get_running_loop().create_unix_connection(lambda: cls(number), sock=ours)
        return channel

    def request(self, *parts: object) -> asyncio.Future[Reply]:
        """Send a request; the future holds its reply, or ChannelLostError."""
        answer = self.expect()
        if self._transport is not None and not self.lost:
            self._transport.write(wire.request(*parts))
        return answer

    def expect(self) -> asyncio.Future[Reply]:
        """One more reply."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self._unclaimed:
            answer.set_result(self._unclaimed.popleft())
        elif self.lost:
            answer.set_exception(ChannelLostError())
        else:
            self._pending.append(answer)
        return answer

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= wire.REPLY.size:
            *_, detail, payload = wire.REPLY.unpack_from(self._buffer)
            size = wire.REPLY.size + detail + payload
            if size > wire.REPLY_LIMIT:
                self.hang_up()
            if len(self._buffer) < size or size > wire.REPLY_LIMIT:
                return
            reply = Reply.parse(self._buffer)
            del self._buffer[:size]
            self._deliver(reply)

    def _deliver(self, reply: Reply) -> None:
        while self._pending:
            answer = self._pending.popleft()
            if reply.kind == wire.CLOSED and self._pending:
                _fail(answer)  # Cut off by the closing that stands behind it.
                continue
            if not answer.done():
                answer.set_result(reply)
            return
        # A berth that cannot be set up says so before it is asked anything.
        self._unclaimed.append(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        while self._pending:
            _fail(self._pending.popleft())


def _fail(answer: asyncio.Future[Reply]) -> None:
    if not answer.done():
        answer.set_exception(ChannelLostError())
        answer.exception()  # Whoever waited may be gone; that is no leak of an error.
