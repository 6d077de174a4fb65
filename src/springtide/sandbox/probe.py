"""What this host allows, tried and not guessed."""

import msgspec

from springtide.ports.sandbox import SandboxLevel
from springtide.sandbox import wire
from springtide.sandbox.linux import SAFE_LEVELS, find_bubblewrap
from springtide.sandbox.warden_process import read_notice, spawn_warden


class LevelReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a box of a level ran a command here; if not, `reason` is what refused it."""

    level: SandboxLevel
    usable: bool
    safe: bool
    """Good enough for model output without an opt-in."""
    reason: str


def probe() -> list[LevelReport]:
    """Open a box of every level, strongest first, and run one command in each. Takes well under a second."""
    process, control = spawn_warden()
    reports = []
    with control:
        for level in SandboxLevel:
            control.send(wire.request("probe", str(level), find_bubblewrap()))
            notice = read_notice(control)
            reason = "the warden ended" if notice is None else notice.detail
            reports.append(LevelReport(level=level, usable=not reason, safe=level in SAFE_LEVELS, reason=reason))
    process.wait()
    return reports
