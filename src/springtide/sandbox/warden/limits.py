"""The limits of a box, and those that the kernel holds per process."""

from __future__ import annotations

import resource

from springtide.sandbox.warden.cgroups import Group

OWN_MEMORY = 16 << 20
"""Granted on top of the declared memory, for the box's own two processes and the kernel's records of its files."""
OWN_PROCESSES = 2
_OPEN_FILES = 1024
_OPEN_FILES_UNCOUNTED = 256
"""Without a control group nothing else limits what waits in pipes and sockets."""
_LOCKED_BYTES = 64 << 10
_NO_CORE = 1
"""Unlike 0, this also keeps the kernel from starting the host's handler for core dumps."""
_CPU_MARGIN = 30
"""Seconds: the box's first process lives under the same limit and is counted over the whole life of the box."""
_FILE_MARGIN = 1 << 20
"""The disk is full before a file hits its own limit, which is for files that take no space."""


_KINDS = (
    resource.RLIMIT_CORE,
    resource.RLIMIT_CPU,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_DATA,
    resource.RLIMIT_NPROC,
)
_HARD = {kind: resource.getrlimit(kind)[1] for kind in _KINDS}


class Limits:
    FIELDS = ("cpu_seconds", "memory_bytes", "pids", "disk_bytes", "output_bytes")
    __slots__ = FIELDS

    def __init__(self, cpu_seconds: float, memory_bytes: int, pids: int, disk_bytes: int, output_bytes: int) -> None:
        self.cpu_seconds = cpu_seconds
        self.memory_bytes = memory_bytes
        self.pids = pids
        # Files live in memory: with more disk than memory the box's first process could find itself out of memory.
        self.disk_bytes = min(disk_bytes, memory_bytes)
        self.output_bytes = output_bytes

    def apply_to_group(self, group: Group) -> None:
        group.set_limits(self.memory_bytes + OWN_MEMORY, self.pids + OWN_PROCESSES)

    def apply_to_process(self, group: Group, other_processes: int = OWN_PROCESSES) -> None:
        """What every command inherits. Stands in for the control groups that are not there.

        `other_processes` run under the same user id in the same user namespace, and count against the same limit.
        """
        fixed = {
            resource.RLIMIT_CORE: _NO_CORE,
            resource.RLIMIT_FSIZE: self.disk_bytes + _FILE_MARGIN,
            resource.RLIMIT_NOFILE: _OPEN_FILES,
            resource.RLIMIT_MEMLOCK: _LOCKED_BYTES,
        }
        if not group.counters.count_cpu:
            fixed[resource.RLIMIT_CPU] = int(self.cpu_seconds) + _CPU_MARGIN
        if not group.limits_memory:
            fixed[resource.RLIMIT_DATA] = self.memory_bytes + OWN_MEMORY
            fixed[resource.RLIMIT_NOFILE] = _OPEN_FILES_UNCOUNTED
        if not group.limits_pids:
            fixed[resource.RLIMIT_NPROC] = self.pids + other_processes
        for kind, value in fixed.items():
            value = value if _HARD[kind] == resource.RLIM_INFINITY else min(value, _HARD[kind])
            resource.setrlimit(kind, (value, value))
