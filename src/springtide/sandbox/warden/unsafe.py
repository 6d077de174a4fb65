"""The levels that a user must ask for by name: a process on the host itself, with Landlock around it or with nothing.

There is no pid or mount namespace: the working directory is a temporary folder, the box sees the host's processes (not
their memory), and what it leaves running is hunted down one by one. Limits are those of processes, and control groups
where there are some.
"""

from __future__ import annotations

import os
from struct import pack

from springtide.sandbox.warden import kernel
from springtide.sandbox.warden.box import Content
from springtide.sandbox.warden.cgroups import Group
from springtide.sandbox.warden.command import ENVIRONMENT, Shell
from springtide.sandbox.warden.limits import Limits
from springtide.sandbox.warden.privileges import become_nobody, harden
from springtide.sandbox.warden.processes import LiveClock, TreeReaper
from springtide.sandbox.warden.rootfs import BOX_ID

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = (1 << n for n in (0, 1, 2, 3, 14, 15))
_ALL_BY_VERSION = (13, 14, 15, 15, 16)
"""How many access rights to files version 1, 2, … knows; later versions know as many as the last."""
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_READABLE = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
_READ_ONLY_DEVICES = ("/dev/zero",)
"""Open for writing, it could be mapped as memory that belongs to no process."""


class Bare:
    box_namespaces = 0

    def __init__(
        self, *, group: Group, program: bytes, folder: str, landlock: bool, read_only: tuple[str, ...]
    ) -> None:
        """`folder` is the berth's own temporary folder; an empty `program` is no filter."""
        self._group, self._program, self._folder = group, program, folder
        self._landlock, self._read_only = landlock, read_only

    def prepare(self) -> None:
        if self._landlock and kernel.landlock_version() == 0:
            raise OSError("this kernel has no Landlock, or it is switched off")
        os.mkdir(self._folder, 0o711)

    def enter(self, limits: Limits, control: int, content: Content) -> tuple[Shell, int]:
        work = f"{self._folder}/work"
        os.mkdir(work, 0o700)
        if os.geteuid() == 0:
            os.chown(work, BOX_ID, BOX_ID)
        counters = self._group.counters
        oom_score = os.open("/proc/self/oom_score_adj", os.O_RDWR)
        become_nobody()
        os.chdir(work)
        reaper = TreeReaper()
        kernel.adopt_orphans()
        others = _own_tasks()
        if self._landlock:
            _restrict(work, self._read_only)
        harden(limits, self._group, self._program, others)
        shell = Shell(
            limits=limits,
            counters=counters,
            reaper=reaper,
            clock=counters if counters.count_cpu else LiveClock(""),
            oom_score=oom_score,
            control=control,
            folders=(work,),
            shell="/bin/sh",
            environment=ENVIRONMENT | {"HOME": work, "PWD": work, "TMPDIR": work},
        )
        return shell, os.open(work, os.O_RDONLY | os.O_DIRECTORY)

    def clear(self) -> None:
        TreeReaper().end_all()
        remove_tree(f"{self._folder}/work")


def remove_tree(path: str) -> None:
    """Remove a folder that untrusted code filled, whatever its permissions; nothing may be running in it any more.

    No link is followed, also if it takes a folder's place meanwhile, and no depth is too deep: inner folders are moved
    up, so that only one is open beside the outermost at a time.
    """
    try:
        top = _open_folder(path, None)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(path)
        return
    try:
        while names := os.listdir(top):
            for name in names:
                _dissolve(name, top)
    finally:
        os.close(top)
    os.rmdir(path)


def _dissolve(name: str, top: int) -> None:
    """Remove a file in the folder `top`, or a folder whose own folders go to `top`."""
    try:
        folder = _open_folder(name, top)
    except NotADirectoryError:
        os.unlink(name, dir_fd=top)
        return
    try:
        for inner in os.listdir(folder):
            try:
                os.close(_open_folder(inner, folder))  # A folder that is moved must be writable.
            except NotADirectoryError:
                os.unlink(inner, dir_fd=folder)
            else:
                os.rename(inner, os.urandom(8).hex(), src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


def _open_folder(name: str, parent: int | None) -> int:
    """A descriptor of a folder, which is made ours to read and write on the way. NotADirectoryError for all else."""
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{place}", 0o700)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)


def _restrict(work: str, read_only: tuple[str, ...]) -> None:
    version = kernel.landlock_version()
    everything = (1 << _ALL_BY_VERSION[min(version, len(_ALL_BY_VERSION)) - 1]) - 1
    # Files; TCP bind and connect from version 4; abstract sockets and signals to the outside from version 6.
    fields = (everything, 0b11, 0b11)
    known = 3 if version >= 6 else 2 if version >= 4 else 1
    ruleset = kernel.landlock_ruleset(pack(f"<{known}Q", *fields[:known]))
    for path in (*_READABLE, *_READ_ONLY_DEVICES, *read_only):
        _allow(ruleset, path, _READ & everything)
    for path in _DEVICES:
        _allow(ruleset, path, (_READ_FILE | _WRITE_FILE | _IOCTL_DEV | _TRUNCATE) & everything)
    _allow(ruleset, work, everything)
    kernel.landlock_enforce(ruleset)
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    if not os.path.exists(path):
        return
    if not os.path.isdir(path):
        access &= _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    kernel.landlock_allow(ruleset, pack("<Qi", access, descriptor))
    os.close(descriptor)


def _own_tasks() -> int:
    """Threads that run under this process's user id now."""
    total = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                total += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return total
