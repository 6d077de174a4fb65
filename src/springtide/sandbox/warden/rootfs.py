"""What a box sees of the file system: a few folders of the host, read-only, and a small root of its own.

A berth builds the stage once, in its own mount namespace: a small tmpfs that becomes its root and holds the skeleton
(the lower layer of every box), read-only binds of the host's program folders and a fresh /dev. A box then needs a
tmpfs for its changes, an overlay of skeleton and changes, and a few binds. Nothing is ever mounted where the host can
see it, so nothing can be left behind: the mounts end with the last process in their namespace.
"""

from __future__ import annotations

import os

from springtide.sandbox.warden.kernel import (
    CLONE_NEWNS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    bind,
    mount,
    pivot_here,
    unshare,
)

WORK = "/work"
USER, HOST = "agent", "box"
BOX_ID = 61000
"""User and group id of everything in a box: outside the ranges that distributions and systemd hand out."""

_STAGING = "/tmp"
"""Any folder that exists everywhere; covered only in the berth's own mount namespace."""
_PROGRAM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}
UNMAPPABLE_ZERO = "full"
"""The device that stands in for /dev/zero where nothing counts memory: it reads the same, but cannot be mapped. Shared
mappings of /dev/zero are memory of no process, and the filter of system calls cannot see which file is mapped: it would
have to refuse those of real files too, which databases and linkers need."""
HOST_ETC = ("ld.so.cache", "os-release", "services", "protocols", "mime.types", "magic")
_OPEN_FOLDERS = ("tmp", "var/tmp", WORK[1:])
"""Writable for the box; the rest of its root is not."""
_HIDDEN_PROC = ("cmdline", "keys", "key-users")
"""Files of the host's kernel that any user may read and that can hold secrets."""
_SAFE = MS_NOSUID | MS_NODEV


class Stage:
    """Names on the stage, and what a box mounts from it."""

    def __init__(self, read_only: tuple[str, ...]) -> None:
        self.binds: list[str] = [f"/{name}" for name in ("usr", *_PROGRAM_FOLDERS) if _is_real_folder(f"/{name}")]
        self.links = {n: os.readlink(f"/{n}") for n in _PROGRAM_FOLDERS if os.path.islink(f"/{n}")}
        self.binds += [path for path in read_only if path not in self.binds]
        self.hidden = [name for name in _HIDDEN_PROC if os.path.exists(f"/proc/{name}")]
        self.overlay = True
        self.user_namespace = False

    def build(self, *, user_namespace: bool, memory_is_counted: bool) -> None:
        """Needs a mount namespace of the caller's own. Afterwards the root is the stage."""
        self.user_namespace = user_namespace
        mount("", "/", "", MS_REC | MS_PRIVATE)
        mount("stage", _STAGING, "tmpfs", _SAFE, "size=16m,nr_inodes=4096,mode=755")
        for name in ("skeleton", "host", "dev", "proc", "box", "root"):
            os.mkdir(f"{_STAGING}/{name}")
        build_skeleton(f"{_STAGING}/skeleton", self.binds, self.links)
        for number, path in enumerate(self.binds):
            target = f"{_STAGING}/host/{number}"
            os.mkdir(target)
            bind(path, target, MS_RDONLY | _SAFE)
        zero = "zero" if memory_is_counted else UNMAPPABLE_ZERO
        self._build_devices(f"{_STAGING}/dev", zero, bind_nodes=user_namespace)
        mount("/proc", f"{_STAGING}/proc", "", MS_BIND | MS_REC)
        os.chdir(_STAGING)
        pivot_here()
        self.overlay = self._try_overlay()

    def _build_devices(self, target: str, zero: str, *, bind_nodes: bool) -> None:
        """`zero`: the device that is called /dev/zero."""
        mount("dev", target, "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,nr_inodes=32,mode=755")
        for name in _DEVICES:
            device = zero if name == "zero" else name
            if bind_nodes:
                os.close(os.open(f"{target}/{name}", os.O_CREAT | os.O_WRONLY))
                bind(f"/dev/{device}", f"{target}/{name}")
            else:
                os.mknod(f"{target}/{name}", 0o20666, os.makedev(*_DEVICES[device]))
                os.chmod(f"{target}/{name}", 0o666)
        for name, link in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
            os.symlink(f"/proc/self/fd{link}", f"{target}/{name}")
        os.symlink("/tmp", f"{target}/shm")
        mount("", target, "", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NOEXEC)

    def _try_overlay(self) -> bool:
        """Whether an overlay can be had: not in a user namespace of older kernels, where a copy takes its place."""
        pid = os.fork()
        if pid == 0:
            try:
                unshare(CLONE_NEWNS)
                self._mount_overlay(1 << 20)
                os._exit(0)
            except BaseException:
                os._exit(1)
        return os.waitpid(pid, 0)[1] == 0

    def enter(self, disk_bytes: int) -> None:
        """Make the box's root and move into it. Needs a mount namespace and a pid namespace of the box's own."""
        if self.overlay:
            self._mount_overlay(disk_bytes)
        else:
            mount("box", "/root", "tmpfs", _SAFE, _tmpfs_options(disk_bytes))
            _copy_tree("/skeleton", "/root")
        for number, path in enumerate(self.binds):
            bind(f"/host/{number}", f"/root{path}")
        mount("/dev", "/root/dev", "", MS_BIND | MS_REC)
        mount("proc", "/root/proc", "proc", _SAFE | MS_NOEXEC | MS_RDONLY)
        for name in self.hidden:
            bind("/dev/null", f"/root/proc/{name}")
        if self.user_namespace:
            self._seal_root()
        os.chdir("/root")
        pivot_here()

    def _mount_overlay(self, disk_bytes: int) -> None:
        mount("box", "/box", "tmpfs", _SAFE, _tmpfs_options(disk_bytes))
        os.mkdir("/box/work")
        os.mkdir("/box/upper")
        # Made in the upper layer beforehand, the first file of a box costs no copy of its folder.
        os.mkdir(f"/box/upper{WORK}")
        os.chown(f"/box/upper{WORK}", BOX_ID, BOX_ID)
        os.mkdir("/box/upper/tmp")
        os.chmod("/box/upper/tmp", 0o1777)
        options = "lowerdir=/skeleton,upperdir=/box/upper,workdir=/box/work"
        mount("box", "/root", "overlay", _SAFE, options + (",userxattr" if self.user_namespace else ""))

    def _seal_root(self) -> None:
        """The box's user owns the skeleton here: keep it from moving its programs away, as a root-owned one does."""
        for name in _OPEN_FOLDERS:
            bind(f"/root/{name}", f"/root/{name}")
        mount("", "/root", "", MS_BIND | MS_REMOUNT | MS_RDONLY | _SAFE)


def build_skeleton(base: str, binds: list[str], links: dict[str, str]) -> None:
    """A root with everything but programs: mount points, a few configuration files, open folders."""
    for name in ("etc", "proc", "dev", "sys", "run", "var", *(path[1:] for path in binds)):
        os.makedirs(f"{base}/{name}", exist_ok=True)
    for name, target in links.items():
        os.symlink(target, f"{base}/{name}")
    for name in _OPEN_FOLDERS:
        _make_open_folder(f"{base}/{name}")
    for name, text in written_etc().items():
        with open(f"{base}/etc/{name}", "w") as file:
            file.write(text)
    for name in HOST_ETC:
        _copy_file(f"/etc/{name}", f"{base}/etc/{name}")
    _copy_links("/etc/alternatives", f"{base}/etc/alternatives")


def written_etc() -> dict[str, str]:
    return {
        "passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\n{USER}:x:{BOX_ID}:{BOX_ID}:{USER}:{WORK}:/bin/sh\n",
        "group": f"root:x:0:\n{USER}:x:{BOX_ID}:\n",
        "hostname": f"{HOST}\n",
        "hosts": f"127.0.0.1 localhost {HOST}\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "resolv.conf": "",
    }


def _make_open_folder(path: str) -> None:
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        os.mkdir(parent)
    os.mkdir(path)
    if path.endswith(WORK):
        os.chmod(path, 0o755)
        os.chown(path, BOX_ID, BOX_ID)
    else:
        os.chmod(path, 0o1777)


def _copy_file(source: str, target: str) -> None:
    try:
        with open(source, "rb") as old, open(target, "wb") as new:
            new.write(old.read())
    except OSError:
        return  # Not on this host, or not for us.


def _copy_links(source: str, target: str) -> None:
    if not os.path.isdir(source):
        return
    os.mkdir(target)
    for entry in os.scandir(source):
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), f"{target}/{entry.name}")


def _copy_tree(source: str, target: str) -> None:
    for entry in os.scandir(source):
        copy = f"{target}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), copy)
        elif entry.is_dir():
            os.mkdir(copy)
            _copy_tree(entry.path, copy)
            found = entry.stat()
            os.chown(copy, found.st_uid, found.st_gid)
            os.chmod(copy, found.st_mode & 0o7777)
        else:
            _copy_file(entry.path, copy)


def _tmpfs_options(disk_bytes: int) -> str:
    """Size and number of files; inodes cost kernel memory, so small files have a limit of their own."""
    return f"size={disk_bytes},nr_inodes={1024 + disk_bytes // 16384},mode=755"


def _is_real_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
