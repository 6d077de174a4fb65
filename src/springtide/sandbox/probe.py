"""What this host allows, tried and not guessed."""

import socket
from contextlib import suppress

import msgspec

from springtide.ports.sandbox import SandboxLevel
from springtide.sandbox import wire
from springtide.sandbox.linux import SAFE_LEVELS, find_bubblewrap
from springtide.sandbox.warden_process import read_notice, spawn_warden

ENDED = "the warden ended"


class LevelReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a box of a level ran a command here; if not, `reason` is what refused it."""

    level: SandboxLevel
    usable: bool
    safe: bool
    """Good enough for model output without an opt-in."""
    reason: str


def probe() -> list[LevelReport]:
    """Open a box of every level, strongest first, and run one command in each. Takes well under a second."""
    try:
        process, control = spawn_warden()
    except OSError as error:
        return [_report(level, f"no warden could be started: {error}") for level in SandboxLevel]
    reports = []
    ended = ""
    with control:
        for level in SandboxLevel:
            reason = ended or _try(control, level)
            if reason.startswith(ENDED):
                ended = reason
            reports.append(_report(level, reason))
    process.wait()
    return reports


def _report(level: SandboxLevel, reason: str) -> LevelReport:
    return LevelReport(level=level, usable=not reason, safe=level in SAFE_LEVELS, reason=reason)


def _try(control: socket.socket, level: SandboxLevel) -> str:
    """Empty when the warden could run a command at that level, else why not."""
    with suppress(OSError):  # If it has ended, what it said before it did is there to be read.
        control.send(wire.request("probe", str(level), find_bubblewrap()))
    try:
        notice = read_notice(control)
    except OSError:
        notice = None
    if notice is None:
        return ENDED
    return f"{ENDED}: {notice.detail}" if notice.kind == wire.FAILED else notice.detail
