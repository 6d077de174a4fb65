"""The language between the trainer and the warden's processes: length-prefixed frames over a stream socket.

Requests come from the trusted side and are marshalled tuples (both ends run the same interpreter). Replies come from
the side where untrusted code runs, so they are fixed fields and two byte strings: nothing in them is ever evaluated.
"""

from __future__ import annotations

import marshal
import os
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ENDS = (
    "ok",
    "nonzero",
    "signal",
    "timeout",
    "cpu_limit",
    "oom",
    "pids_limit",
    "disk_full",
    "output_limit",
    "sandbox_error",
)
"""How a command ended, by its number in a reply."""

LENGTH = Struct("<I")
REPLY = Struct("<BBidII")
"""Kind, end, code, seconds, bytes of detail, bytes of payload."""

REPLY_LIMIT = 1 << 28
"""A longer detail or payload is a broken peer."""

READY, OPENED, RESULT, DONE, ABSENT, FAILED, CLOSED, ENDED, PROBED = range(9)
"""Kinds of reply. `code` is the exit code in RESULT, the error number in FAILED, the berth in ENDED."""


def request(*parts: Any) -> bytes:
    body = marshal.dumps(parts)
    return LENGTH.pack(len(body)) + body


def reply(
    kind: int, *, end: str = "ok", code: int = 0, seconds: float = 0.0, detail: str = "", payload: bytes = b""
) -> bytes:
    text = detail.encode(errors="replace")
    return REPLY.pack(kind, ENDS.index(end), code, seconds, len(text), len(payload)) + text + payload


def read_request(descriptor: int) -> tuple[object, ...] | None:
    """The next request, blocking; None at the end of the stream."""
    head = _read_exactly(descriptor, LENGTH.size)
    if head is None:
        return None
    body = _read_exactly(descriptor, LENGTH.unpack(head)[0])
    if body is None:
        return None
    parts = marshal.loads(body)
    assert isinstance(parts, tuple)
    return parts


def send(descriptor: int, frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[os.write(descriptor, view) :]


def _read_exactly(descriptor: int, size: int) -> bytes | None:
    chunks = []
    while size:
        chunk = os.read(descriptor, min(size, 1 << 20))
        if not chunk:
            return None
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)
