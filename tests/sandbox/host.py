"""The limits that these tests use, and what a sandbox could leave on the host."""

import os
import subprocess
import time
from pathlib import Path

from springtide.ports.sandbox import Limits
from springtide.sandbox.warden import owner

LIMITS = Limits(
    wall_seconds=60.0, cpu_seconds=120.0, memory_bytes=64 << 20, pids=16, disk_bytes=8 << 20, output_bytes=32 << 10
)
"""Time is plentiful: a test of another limit must end at that one on a slow host too."""


def leftovers(seconds: float = 10.0) -> set[str]:
    """Control groups and temporary folders whose owner is dead, and mounts of boxes: whatever does not go by itself.

    Sandboxes of other programs on this host have live owners and are none of our business.
    """
    deadline = time.monotonic() + seconds
    while (found := _leftovers()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def _leftovers() -> set[str]:
    folders = ["/tmp", *(folder for folder, _, _ in os.walk("/sys/fs/cgroup"))]
    found = {path for folder in folders for path in owner.leftovers(folder)}
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return found | {line for line in mounts if line.split()[0] in ("box", "stage")}


def descendants(pid: int) -> set[int]:
    output = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in output.splitlines())}
    found = {pid}
    while grown := {child for child, parent in parents.items() if parent in found} - found:
        found |= grown
    return found - {pid}


def await_gone(pids: set[int], seconds: float = 20.0) -> set[int]:
    """Those of `pids` that still run after at most `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := {pid for pid in pids if is_running(pid)}) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill_quietly(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return
