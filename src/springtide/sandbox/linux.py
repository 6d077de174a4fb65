"""The sandbox on Linux: one warden, and a berth for each box that is open at the same time.

A berth is kept when its box closes and serves the next box; the box itself (its processes, files and namespaces) is new
every time.
"""

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import Mapping, Sequence

from springtide.core.errors import InvalidEpisodeError, SpringtideError, UnsafeSandboxError, UsageError
from springtide.core.outcome import InvalidCause
from springtide.ports.sandbox import Limits, SandboxLevel
from springtide.sandbox import wire
from springtide.sandbox.channel import Channel, ChannelLostError, Reply
from springtide.sandbox.config import SandboxConfig
from springtide.sandbox.linux_box import LinuxBox, encode_files
from springtide.sandbox.warden_process import WardenProcess

SAFE_LEVELS = (SandboxLevel.NAMESPACES, SandboxLevel.USER_NAMESPACES, SandboxLevel.BUBBLEWRAP)
_PATIENCE_SECONDS = 30.0
"""For whatever normally takes milliseconds, on a loaded host."""
_NO_WORDS = "it was killed"


def find_bubblewrap() -> str:
    return shutil.which("bwrap") or ""


class LinuxSandbox:
    """Implements `ports.sandbox.Sandbox`. Belongs to the event loop that started it."""

    def __init__(self, config: SandboxConfig, *, levels: Sequence[SandboxLevel] = ()) -> None:
        """`levels` are tried in place of those that `config` allows."""
        self._config = config
        self._levels = list(levels) or _allowed_levels(config)
        self.level = self._levels[0]
        self.limits_by = ""
        """What holds the limits: control groups of some version, or process limits."""
        self._warden: WardenProcess | None = None
        self._starting = asyncio.Lock()
        self._ready: asyncio.Future[Reply] | None = None
        self._free: list[Channel] = []
        self._channels: set[Channel] = set()
        self._ends: dict[int, asyncio.Future[Reply]] = {}
        self._numbered = 0
        self._last_words = _NO_WORDS

    async def start(self) -> None:
        """UsageError for a folder of `sandbox.read_only` that is not there, UnsafeSandboxError when the warden or every
        level that is allowed cannot be had."""
        async with self._starting:
            if self._warden is not None and not self._warden.ended:
                return
            _require_folders(self._config.read_only)
            try:
                ready = await self._start_warden()
            except (OSError, InvalidEpisodeError) as error:  # TimeoutError is an OSError
                await self._give_up()
                raise UnsafeSandboxError(_no_warden(error)) from error
            level, self.limits_by, *reasons = ready.detail.split("\n")
            if not level:
                await self._give_up()
                raise UnsafeSandboxError(_refusal(self._config, reasons))
            self.level = SandboxLevel(level)

    async def _start_warden(self) -> Reply:
        """What the warden says once it has chosen a level. OSError or InvalidEpisodeError when it cannot say that."""
        self._last_words = _NO_WORDS
        self._ready = asyncio.get_running_loop().create_future()
        self._warden = WardenProcess(self._hear, self._forget_all)
        levels = [str(level) for level in self._levels]
        with contextlib.suppress(ConnectionError):  # It has ended, and why is still to be heard.
            await self._warden.tell("start", levels, find_bubblewrap(), list(self._config.read_only))
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await self._ready

    async def _give_up(self) -> None:
        """End a warden that is no use."""
        warden, self._warden = self._warden, None
        if warden is not None:
            await warden.close(patience_seconds=_PATIENCE_SECONDS)

    async def open(self, *, files: Mapping[str, bytes], limits: Limits) -> LinuxBox:
        """InvalidEpisodeError when the host fails to make the box; ValueError for a path that leaves its folder."""
        content = encode_files(files)
        numbers = (
            float(limits.cpu_seconds),
            limits.memory_bytes,
            limits.pids,
            limits.disk_bytes,
            limits.output_bytes,
        )
        channel = self._free_berth() or await self._new_berth()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._open_on(channel, numbers, content)
        except TimeoutError:
            await self.discard(channel)
            raise InvalidEpisodeError(InvalidCause.INFRASTRUCTURE, "a box did not open within its time") from None
        except asyncio.CancelledError:
            await self.discard(channel)
            raise
        return LinuxBox(keeper=self, channel=channel, limits=limits)

    async def _open_on(self, channel: Channel, numbers: tuple[float, ...], content: dict[bytes, bytes]) -> None:
        try:
            reply = await channel.request("open", numbers, content)
        except ChannelLostError:
            end = await self.end_of(channel)
            raise InvalidEpisodeError(InvalidCause.INFRASTRUCTURE, f"no box could be opened: {end.detail}") from None
        if reply.kind != wire.FAILED:
            return
        with contextlib.suppress(ChannelLostError):
            await channel.expect()
            self.take_back(channel)
        raise InvalidEpisodeError(InvalidCause.INFRASTRUCTURE, reply.detail)

    async def close(self) -> None:
        """Kill every box, and wait until nothing is left. Idempotent."""
        warden, self._warden = self._warden, None
        for channel in list(self._channels):
            channel.hang_up()
        if warden is not None:
            killed = warden.ended
            await warden.close(patience_seconds=_PATIENCE_SECONDS)
            if killed:
                # Its successor clears away what it could not; if there can be none now, the next start does.
                with contextlib.suppress(OSError):
                    await WardenProcess(self._hear, self._forget_all).close(patience_seconds=_PATIENCE_SECONDS)

    def _free_berth(self) -> Channel | None:
        while self._free:
            channel = self._free.pop()
            if not channel.lost:
                return channel
        return None

    async def _new_berth(self) -> Channel:
        if self._warden is None or self._warden.ended:
            await self._start_again()
        if self._warden is None:
            raise InvalidEpisodeError(InvalidCause.INFRASTRUCTURE, "the sandbox was closed while a box was to open")
        self._numbered += 1
        number = self._numbered
        self._ends[number] = asyncio.get_running_loop().create_future()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                await self._warden.tell("berth", number, descriptor=theirs.fileno())
        except OSError as error:
            ours.close()
            raise InvalidEpisodeError(InvalidCause.INFRASTRUCTURE, f"no box could be opened: {error}") from None
        channel = await Channel.connect(number, ours)
        self._channels.add(channel)
        return channel

    async def _start_again(self) -> None:
        """The run goes on, and with it the hope for the next episode: what refuses a start costs this one alone."""
        try:
            await self.start()
        except SpringtideError as error:
            raise InvalidEpisodeError(InvalidCause.INFRASTRUCTURE, str(error)) from error

    async def end_of(self, channel: Channel) -> Reply:
        """How a berth ended that hung up."""
        self._channels.discard(channel)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await asyncio.shield(self._ends[channel.number])
        except TimeoutError:
            return self._no_end()

    async def discard(self, channel: Channel) -> None:
        """Kill a berth that does not do what it should, and its box."""
        channel.hang_up()
        self._channels.discard(channel)
        if self._warden is not None:
            with contextlib.suppress(OSError):
                await self._warden.tell("kill", channel.number)

    def take_back(self, channel: Channel) -> None:
        """Its box is closed: the berth may serve the next one."""
        if not channel.lost:
            self._free.append(channel)

    def _no_end(self) -> Reply:
        return Reply(wire.ENDED, "sandbox_error", -1, 0.0, f"the warden ended: {self._last_words}", b"")

    def _hear(self, notice: Reply) -> None:
        if notice.kind == wire.READY and self._ready is not None and not self._ready.done():
            self._ready.set_result(notice)
        elif notice.kind == wire.ENDED:
            self._end(notice.code, notice)
        elif notice.kind == wire.FAILED:
            self._last_words = notice.detail

    def _end(self, number: int, notice: Reply) -> None:
        self._free = [channel for channel in self._free if channel.number != number]
        end = self._ends.get(number)
        if end is not None and not end.done():
            end.set_result(notice)

    def _forget_all(self) -> None:
        """The warden has ended, by itself or by a stranger's hand; its berths end with it."""
        for number in list(self._ends):
            self._end(number, self._no_end())
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(InvalidEpisodeError(InvalidCause.INFRASTRUCTURE, self._no_end().detail))


def _allowed_levels(config: SandboxConfig) -> list[SandboxLevel]:
    levels = list(SAFE_LEVELS) if config.level == "auto" else [SandboxLevel(config.level)]
    if config.allow_unsafe:
        levels.append(SandboxLevel.LANDLOCK)
    if config.allow_unsafe == "none":
        levels.append(SandboxLevel.NONE)
    return levels


def _require_folders(paths: Sequence[str]) -> None:
    for path in paths:
        if not os.path.isdir(path):
            raise UsageError(f'sandbox.read_only = "{path}": there is no such folder; make it, or leave it out.')


def _no_warden(error: Exception) -> str:
    reason = "it did not answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return (
        f"The sandbox's warden, the process that makes its boxes, could not start ({reason}): "
        "`springtide sandbox` tries each level and says what this host lacks."
    )


def _refusal(config: SandboxConfig, reasons: list[str]) -> str:
    tried = "; ".join(reasons)
    if config.level != "auto":
        return f"sandbox.level = {config.level!r} cannot be had on this host ({tried}): choose 'auto', or another host."
    if config.allow_unsafe:
        return f"Not even the unsafe sandbox.allow_unsafe = {config.allow_unsafe!r} can be had on this host ({tried})."
    return (
        f"This host offers no isolation that is safe for model output ({tried}): run as root, allow unprivileged user "
        "namespaces, or install bubblewrap; or accept less by name with sandbox.allow_unsafe = 'landlock'."
    )
