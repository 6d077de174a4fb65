"""Ending every process of a box, and counting the CPU time of those that no control group counts."""

from __future__ import annotations

import os

from springtide.sandbox.warden.kernel import SIGKILL


class NamespaceReaper:
    """For the first process of a pid namespace: one signal reaches all others, and no fork in flight escapes it."""

    def end_all(self) -> None:
        """Kill and collect every process but the caller."""
        try:
            os.kill(-1, SIGKILL)
            while True:
                os.waitpid(-1, 0)
        except (ProcessLookupError, ChildProcessError):
            return


class TreeReaper:
    """Without a pid namespace, for a process that adopts orphans: kill the children, and those that become children.

    A process that forks without end can outrun this; only the limit on processes stops it.
    """

    def __init__(self) -> None:
        self._children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)

    def end_all(self) -> None:
        while pids := os.pread(self._children, 1 << 16, 0).split():
            for pid in pids:
                os.kill(int(pid), SIGKILL)
            os.waitpid(-1, 0)


Reaper = NamespaceReaper | TreeReaper


class LiveClock:
    """CPU time of the caller's descendants: collected ones, and those alive in `proc`, if it shows only them.

    A child that is never waited for (its parent ignores SIGCHLD) escapes it; the wall limit still holds.
    """

    def __init__(self, proc: str) -> None:
        self._proc = os.open(proc, os.O_RDONLY | os.O_DIRECTORY) if proc else -1
        self._own = str(os.getpid())

    def cpu_seconds(self) -> float:
        usage = os.times()
        names = os.listdir(self._proc) if self._proc >= 0 else []
        ticks = sum(self._ticks(name) for name in names if name.isdecimal() and name != self._own)
        return usage.children_user + usage.children_system + ticks / os.sysconf("SC_CLK_TCK")

    def _ticks(self, name: str) -> int:
        try:
            descriptor = os.open(f"{name}/stat", os.O_RDONLY, dir_fd=self._proc)
        except OSError:
            return 0
        try:
            fields = os.read(descriptor, 4096).rpartition(b")")[2].split()
            return int(fields[11]) + int(fields[12])
        except OSError:
            return 0
        finally:
            os.close(descriptor)
