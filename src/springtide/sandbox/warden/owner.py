"""Whose leftovers are whose: what outlives a process is named after it, so that the name is the registry.

A name holds the pid namespace, the pid and the start time of its warden. Whoever starts next and sees the same pid
namespace can tell a live owner from a dead one, even when the pid has been used again.
"""

from __future__ import annotations

import os

PREFIX = "springtide-"


def start_time(pid: int) -> int:
    """Clock ticks from boot to the start of `pid`, 0 when it does not run (any more)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, *fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if state in b"ZX" else int(fields[18])


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def own_name() -> str:
    pid = os.getpid()
    return f"{PREFIX}{_pid_namespace()}-{pid}-{start_time(pid)}"


def is_leftover(name: str) -> bool:
    """Whether `name` was made by `own_name` of a process that no longer runs. Unsure is no."""
    parts = name.removeprefix(PREFIX).split("-")
    if not name.startswith(PREFIX) or len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return False
    namespace, pid, started = map(int, parts)
    return namespace == _pid_namespace() and start_time(pid) != started


def leftovers(folder: str) -> list[str]:
    """What dead owners of this user left in `folder`. What bears such a name but is another user's is left to them."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [f"{folder}/{name}" for name in names if is_leftover(name) and _is_ours(f"{folder}/{name}")]


def _is_ours(path: str) -> bool:
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False
