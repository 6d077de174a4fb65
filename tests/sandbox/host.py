"""The limits that these tests use, and what a sandbox could leave on the host."""

import os
import subprocess
import time
from pathlib import Path

from springtide.ports.sandbox import Limits

LIMITS = Limits(
    wall_seconds=10.0, cpu_seconds=5.0, memory_bytes=64 << 20, pids=16, disk_bytes=8 << 20, output_bytes=32 << 10
)


def leftovers() -> set[str]:
    """Control groups, temporary folders, mounts and processes of any sandbox on this host, by name."""
    found = {str(path) for path in Path("/sys/fs/cgroup").glob("**/springtide-*") if path.is_dir()}
    found |= {str(path) for path in Path("/tmp").glob("springtide-*")}
    found |= {
        line for line in Path("/proc/self/mounts").read_text().splitlines() if line.startswith(("box ", "stage "))
    }
    return found | {f"process {pid}" for pid in wardens()}


def wardens() -> set[int]:
    """Wardens, berths and first processes of boxes: they share one command line."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"springtide-warden"):
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


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
