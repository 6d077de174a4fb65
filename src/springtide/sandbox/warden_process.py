"""The trainer's hold on the warden: the process, its control socket, and the sockets to its berths.

The control socket keeps message boundaries and carries the berths' sockets to the warden. Its end, when the trainer
ends in any way, is what makes the warden clear up.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from springtide.core.errors import UnsafeSandboxError
from springtide.sandbox import wire
from springtide.sandbox.channel import Reply

_BOOT = Path(__file__).parent / "warden" / "boot.py"
_RETRY_SECONDS = 0.005


def spawn_warden() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a warden. It shares nothing with this process but the returned control socket. OSError if it cannot be."""
    if sys.platform != "linux":
        raise UnsafeSandboxError(
            f"The sandbox needs Linux, and this is {sys.platform}: run on Linux or in a virtual machine."
        )
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, contextlib.ExitStack() as undo:
        undo.callback(ours.close)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_BOOT), "warden", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            cwd="/",
            env={},
        )
        undo.pop_all()
    return process, ours


def read_notice(control: socket.socket) -> Reply | None:
    """The next message of the warden, None at its end."""
    try:
        message = control.recv(1 << 18)
    except ConnectionResetError:  # It ended without reading all; what it said before can still be read.
        message = control.recv(1 << 18)
    return Reply.parse(message) if message else None


class WardenProcess:
    """A running warden, from the event loop's side."""

    def __init__(self, on_notice: Callable[[Reply], None], on_end: Callable[[], None]) -> None:
        self._process, self._control = spawn_warden()
        self._control.setblocking(False)
        self._on_notice, self._on_end = on_notice, on_end
        self._end = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._control.fileno(), self._read)

    @property
    def ended(self) -> bool:
        return self._end.is_set()

    def _read(self) -> None:
        try:
            notice = read_notice(self._control)
        except BlockingIOError:
            return
        if notice is not None:
            self._on_notice(notice)
            return
        self._end.set()
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self._on_end()

    async def tell(self, *parts: object, descriptor: int | None = None) -> None:
        """Send one request. ConnectionError when the warden has ended, and then `on_end` has been called."""
        frame = wire.request(*parts)
        while not self.ended:
            try:
                socket.send_fds(self._control, [frame], [] if descriptor is None else [descriptor])
                return
            except BlockingIOError:
                await asyncio.sleep(_RETRY_SECONDS)
            except ConnectionError:
                await self._end.wait()  # Or a caller that tries again at once would never let the loop hear of it.
        raise BrokenPipeError("the warden has ended")

    async def close(self, *, patience_seconds: float) -> None:
        """Hang up and wait until everything is cleared away."""
        if not self.ended:
            self._control.shutdown(socket.SHUT_WR)
        deadline = self._loop.time() + patience_seconds
        while self._process.poll() is None:
            if self._loop.time() > deadline:
                self._process.kill()
            await asyncio.sleep(_RETRY_SECONDS)
