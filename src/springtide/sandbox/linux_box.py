"""A box, seen from the trainer."""

import asyncio
import os
from collections.abc import Mapping
from typing import Protocol

from springtide.core.errors import InvalidEpisodeError
from springtide.core.outcome import InvalidCause
from springtide.ports.sandbox import CommandEnd, CommandResult, Limits, SandboxLevel
from springtide.sandbox import wire
from springtide.sandbox.channel import Channel, ChannelLostError, Reply

_GRACE_SECONDS = 30.0
"""Beyond its own deadline a box may be late this much on a loaded host before it counts as broken."""


class Keeper(Protocol):
    """What a box needs from the sandbox that made it."""

    level: SandboxLevel

    async def end_of(self, channel: Channel) -> Reply: ...
    async def discard(self, channel: Channel) -> None: ...
    def take_back(self, channel: Channel) -> None: ...


class LinuxBox:
    """Implements `ports.sandbox.Box`. Calls on one box take turns; `close` cuts off one in progress."""

    def __init__(self, *, keeper: Keeper, channel: Channel, limits: Limits) -> None:
        self._keeper, self._channel, self._limits = keeper, channel, limits
        self._turn = asyncio.Lock()
        self._closed = False
        self._cut_off = False
        self._lost: Reply | None = None

    async def run(self, command: str, *, stdin: bytes = b"", wall_seconds: float | None = None) -> CommandResult:
        wall = self._limits.wall_seconds if wall_seconds is None else wall_seconds
        encoded = command.encode(errors="surrogatepass")
        async with self._turn:
            reply = await self._ask("run", encoded, stdin, float(wall), seconds=wall)
        return CommandResult(
            end=CommandEnd(reply.end),
            returncode=reply.code,
            output=reply.payload,
            seconds=reply.seconds,
            level=self._keeper.level,
            detail=reply.detail,
        )

    async def write(self, files: Mapping[str, bytes]) -> None:
        """ValueError for a path that is absolute, empty or steps out; OSError for what the box's own state refuses.

        The latter (a full disk, a folder in the file's place, a box lost to its memory limit) is the agent's doing.
        """
        content = encode_files(files)
        async with self._turn:
            reply = await self._ask("write", content)
        if reply.kind == wire.FAILED:
            raise OSError(reply.code, reply.detail)

    async def read(self, path: str, *, limit: int = 1 << 20) -> bytes | None:
        """At most `limit` bytes. A path that leaves the working directory names no file in it: None."""
        try:
            encoded = encode_path(path)
        except ValueError:
            return None
        async with self._turn:
            reply = await self._ask("read", encoded, limit)
        return reply.payload if reply.kind == wire.DONE else None

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._channel.request("close")
            self._keeper.take_back(self._channel)
        except ChannelLostError:
            return
        except TimeoutError:
            await self._keeper.discard(self._channel)
        except BaseException:
            await self._keeper.discard(self._channel)
            raise

    async def _ask(self, *parts: object, seconds: float = 0.0) -> Reply:
        """One request and its reply. A box lost to its own memory limit answers FAILED from then on."""
        if self._closed:
            raise InvalidEpisodeError(InvalidCause.HARNESS, "the box was used after it was closed")
        if self._cut_off:
            raise InvalidEpisodeError(
                InvalidCause.INFRASTRUCTURE, "an earlier call on this box was cut off and it cannot go on"
            )
        if self._lost is not None:
            return self._lost
        self._cut_off = True
        try:
            async with asyncio.timeout(seconds + _GRACE_SECONDS):
                reply = await self._channel.request(*parts)
        except ChannelLostError:
            reply = self._lost = await self._why_lost()
        except TimeoutError:
            await self._keeper.discard(self._channel)
            raise InvalidEpisodeError(InvalidCause.INFRASTRUCTURE, "the box did not answer within its time") from None
        self._cut_off = False
        return reply

    async def _why_lost(self) -> Reply:
        """How a box ended that nobody closed: out of its own memory, which is valid, or InvalidEpisodeError."""
        if self._closed:
            raise InvalidEpisodeError(
                InvalidCause.INFRASTRUCTURE, "the box was closed while a call on it was in progress"
            )
        ended = await self._keeper.end_of(self._channel)
        if ended.end != "oom":
            raise InvalidEpisodeError(InvalidCause.INFRASTRUCTURE, f"the box ended unexpectedly: {ended.detail}")
        detail = "the box was lost: nothing was left to kill at its memory limit but the box itself"
        return Reply(wire.FAILED, "oom", -9, 0.0, detail, b"")


def encode_files(files: Mapping[str, bytes]) -> dict[bytes, bytes]:
    return {encode_path(path): bytes(content) for path, content in files.items()}


def encode_path(path: str) -> bytes:
    """ValueError for a path that is not plainly below the working directory."""
    if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise ValueError(f"the path {path!r} must be relative, without empty parts, '.' or '..'")
    return os.fsencode(path)
