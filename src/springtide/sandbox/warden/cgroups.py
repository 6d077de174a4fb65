"""Control groups, version 1 and 2: memory, processes and CPU time of a box.

Moving a process into a group costs milliseconds, so it is done once per berth; the boxes that a berth forks start in
its group. All groups of a warden hang below one that is named after it (see `owner`) at the root of what is visible,
beside the group that the program itself lives in, which is never touched.
"""

from __future__ import annotations

import os
import time
from errno import EBUSY
from mmap import mmap

from springtide.sandbox.warden.kernel import SIGKILL
from springtide.sandbox.warden.owner import leftovers, own_name
from springtide.sandbox.warden.shortage import MemoryCounters, Shortage, field

_V1_CONTROLLERS = ("memory", "pids", "cpuacct")
_V2_CONTROLLERS = ("memory", "pids")
_V1_FILES = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control", "cpuacct.usage")
_V2_FILES = ("memory.max", "memory.swap.max", "memory.events", "cpu.stat")
_V1_PEAKS = ("memory.max_usage_in_bytes", "memory.memsw.max_usage_in_bytes")
"""The most that memory, and memory plus swap, came to. The limit of both is the same."""
_REMOVAL_SECONDS = 5.0


class Counters:
    """Open counters of a group: they stay readable where the group's files are out of sight."""

    def __init__(self, memory: MemoryCounters, pids: int, cpu: int, version: int) -> None:
        self.memory, self._pids, self._cpu, self._version = memory, pids, cpu, version

    def refused_forks(self) -> int:
        return field(self._pids, b"max")

    @property
    def count_cpu(self) -> bool:
        return self._cpu >= 0

    def cpu_seconds(self) -> float:
        """CPU time of everything that ever ran in the group."""
        if self._version == 1:
            return int(os.pread(self._cpu, 64, 0)) / 1e9
        return field(self._cpu, b"usage_usec") / 1e6


class Group:
    """The group of one berth: one folder per hierarchy.

    `open` is called where the folders are in sight; limits and counters work through descriptors from then on. The mark
    of the counters is in a page that warden, berth and box share, so that the warden can read it when they are dead.
    """

    def __init__(self, version: int, folders: dict[str, str]) -> None:
        self._version = version
        self._folders = folders
        self._limits: dict[str, int] = {}
        self._set_to = (0, 0)
        self._mark = mmap(-1, MemoryCounters.MARK.size)
        self.counters = Counters(MemoryCounters(-1), -1, -1, version)

    @property
    def limits_memory(self) -> bool:
        return "memory" in self._limits

    @property
    def limits_pids(self) -> bool:
        return "pids" in self._limits

    def create(self) -> None:
        for folder in set(self._folders.values()):
            os.mkdir(folder)

    def attach(self) -> None:
        """Move the calling process into the group."""
        for folder in set(self._folders.values()):
            _write(f"{folder}/cgroup.procs", "0")

    def open(self) -> None:
        memory, swap, _, cpu = _V1_FILES if self._version == 1 else _V2_FILES
        for name, controller, file in (
            ("memory", "memory", memory),
            ("swap", "memory", swap),
            ("pids", "pids", "pids.max"),
        ):
            descriptor = self._open(controller, file, os.O_WRONLY)
            if descriptor >= 0:
                self._limits[name] = descriptor
        self.counters = Counters(
            self._open_memory(), self._open("pids", "pids.events"), self._open("cpuacct", cpu), self._version
        )

    def _open_memory(self) -> MemoryCounters:
        if self._version == 2:
            return MemoryCounters(self._open("memory", _V2_FILES[2]), mark=self._mark)
        limit, _, kills, _ = _V1_FILES
        peaks = [self._open("memory", peak, os.O_RDWR) for peak in _V1_PEAKS]
        found = tuple(peak for peak in peaks if peak >= 0)
        return MemoryCounters(self._open("memory", kills), self._open("memory", limit), found, self._mark)

    def _open(self, controller: str, file: str, mode: int = os.O_RDONLY) -> int:
        try:
            return os.open(f"{self._folders[controller]}/{file}", mode)
        except (KeyError, FileNotFoundError):
            return -1

    def set_limits(self, memory_bytes: int, pids: int) -> None:
        if self._set_to == (memory_bytes, pids):
            return
        self._set_to = (memory_bytes, pids)
        memory, swap = b"%d" % memory_bytes, b"0"
        if self._version == 1:
            swap = memory  # Version 1 counts memory plus swap.
        try:
            self._set("memory", memory)
            self._set("swap", swap)
        except OSError:
            # Version 1 never lets the first exceed the second, so the order depends on the direction of the change.
            self._set("swap", swap)
            self._set("memory", memory)
        self._set("pids", b"%d" % pids)

    def _set(self, name: str, value: bytes) -> None:
        if name in self._limits:
            os.write(self._limits[name], value)

    def last_shortage(self) -> Shortage:
        """What a lack of memory has cost since the last mark, for whom the folders are in sight."""
        memory = self._open_memory()
        try:
            return memory.since_begin()
        finally:
            memory.close()

    def close_limits(self) -> None:
        for descriptor in self._limits.values():
            os.close(descriptor)

    def remove(self) -> None:
        for folder in set(self._folders.values()):
            _kill_and_remove(folder)
        self._mark.close()


NO_GROUP = Group(1, {})


class GroupTree:
    """All groups of one warden."""

    def __init__(self, version: int, folders: dict[str, str]) -> None:
        self.version = version
        self._folders = folders
        self._created = 0

    @property
    def controllers(self) -> tuple[str, ...]:
        return tuple(self._folders)

    def create(self) -> Group:
        self._created += 1
        group = Group(self.version, {name: f"{path}/{self._created}" for name, path in self._folders.items()})
        try:
            group.create()
        except OSError:
            group.remove()
            raise
        return group

    def remove(self) -> None:
        for folder in set(self._folders.values()):
            _kill_and_remove(folder)


def plant(mounts: str = "/proc/self/mounts", own_group: str = "/proc/self/cgroup") -> GroupTree:
    """Make the warden's own group in every usable hierarchy, clearing away those of dead wardens on the way."""
    v1, v2 = _hierarchies(mounts)
    name = own_name()
    folders: dict[str, str] = {}
    for controller in _V1_CONTROLLERS:
        folder = f"{v1.get(controller, '')}/{name}"
        if controller in v1 and (folder in folders.values() or _plant_in(v1[controller], name, ())):
            folders[controller] = folder
    if "memory" in folders and "pids" in folders:
        return GroupTree(1, folders)
    for base in _v2_bases(v2, own_group):
        if _plant_in(base, name, _V2_CONTROLLERS):
            GroupTree(1, folders).remove()
            return GroupTree(2, dict.fromkeys((*_V2_CONTROLLERS, "cpuacct"), f"{base}/{name}"))
    return GroupTree(1, folders)


def _plant_in(base: str, name: str, controllers: tuple[str, ...]) -> bool:
    for leftover in leftovers(base):
        _kill_and_remove(leftover)
    try:
        os.mkdir(f"{base}/{name}")
    except OSError:
        return False
    try:
        if controllers:
            _write(f"{base}/{name}/cgroup.subtree_control", " ".join(f"+{controller}" for controller in controllers))
    except OSError:
        _kill_and_remove(f"{base}/{name}")
        return False
    return True


def _hierarchies(mounts: str) -> tuple[dict[str, str], str]:
    """The mount points of the version 1 controllers, and of version 2 (empty when not mounted)."""
    v1: dict[str, str] = {}
    v2 = ""
    with open(mounts) as lines:
        for line in lines:
            _, point, kind, options, *_ = line.split()
            if kind == "cgroup":
                v1.update({option: point for option in options.split(",") if option in _V1_CONTROLLERS})
            elif kind == "cgroup2":
                v2 = point
    return v1, v2


def _v2_bases(mount: str, own_group: str) -> list[str]:
    """Where a group may be made: beside our own (a delegated subtree), or at the root of what is visible."""
    if not mount:
        return []
    with open(own_group) as lines:
        own = next((line[3:].strip() for line in lines if line.startswith("0::")), "/")
    beside = mount + os.path.dirname(own).rstrip("/")
    return [beside] if beside == mount else [beside, mount]


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"writing {text!r} to {path}: {os.strerror(error.errno or 0)}") from None
    finally:
        os.close(descriptor)


def _write_if_there(path: str, text: str) -> None:
    if os.path.exists(path):
        _write(path, text)


def _kill_and_remove(folder: str) -> None:
    """Kill what is left in a group and those below it, and remove them. Gives up in the end, without an error."""
    deadline = time.monotonic() + _REMOVAL_SECONDS
    try:
        _write_if_there(f"{folder}/cgroup.kill", "1")
        for inner in os.scandir(folder) if os.path.isdir(folder) else ():
            if inner.is_dir(follow_symlinks=False):
                _kill_and_remove(inner.path)
    except OSError:
        pass  # Gone meanwhile, or not ours: removing it tells.
    while time.monotonic() < deadline:
        try:
            os.rmdir(folder)
            return
        except OSError as error:
            if error.errno != EBUSY:
                return  # Gone already, or not ours to remove.
            _kill_members(folder)
            time.sleep(0.002)


def _kill_members(folder: str) -> None:
    try:
        with open(f"{folder}/cgroup.procs") as members:
            pids = [int(line) for line in members]
        for pid in pids:
            if pid > 0:
                os.kill(pid, SIGKILL)
    except OSError:
        return
