"""Boxes in namespaces of their own, made as root or in an unprivileged user namespace by the same code."""

from __future__ import annotations

import os

from springtide.sandbox.warden import kernel
from springtide.sandbox.warden.box import Content
from springtide.sandbox.warden.cgroups import Group
from springtide.sandbox.warden.command import ENVIRONMENT, Shell
from springtide.sandbox.warden.kernel import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
)
from springtide.sandbox.warden.limits import Limits
from springtide.sandbox.warden.privileges import become_nobody, harden
from springtide.sandbox.warden.processes import LiveClock, NamespaceReaper
from springtide.sandbox.warden.rootfs import BOX_ID, HOST, WORK, Stage


class Namespaces:
    """As root, or (with `user`) in a user namespace, where the box's user is the only one and is nobody outside.

    What a berth's boxes can share one after the other, because nothing of a box stays in it, is made once: control
    group, network namespace (loopback only, down), host name. Mounts, processes and IPC objects are new for each box.
    """

    box_namespaces = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC

    def __init__(self, *, group: Group, program: bytes, read_only: tuple[str, ...], user: bool) -> None:
        self._group, self._program, self._user = group, program, user
        self._stage = Stage(read_only)
        self._shell = "/usr/bin/sh" if "bin" in self._stage.links else "/bin/sh"

    def prepare(self) -> None:
        if self._user:
            if not self._group.limits_pids and _kernel_version() < (5, 14):
                raise OSError("without control groups for processes it takes Linux 5.14 to limit them per box")
            become_nobody()
            _enter_user_namespace()
        elif not (self._group.limits_memory and self._group.limits_pids):
            raise OSError("control groups that limit memory and processes cannot be made on this host")
        kernel.unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWCGROUP)
        kernel.sethostname(HOST.encode())
        self._stage.build(user_namespace=self._user, memory_is_counted=self._group.limits_memory)
        kernel.die_with_parent()

    def enter(self, limits: Limits, control: int, content: Content) -> tuple[Shell, int]:
        """In the first process of a new box: the shell, and a descriptor of its working directory."""
        oom_score = os.open("/proc/self/oom_score_adj", os.O_RDWR)
        self._stage.enter(limits.disk_bytes)
        if not self._user:
            become_nobody()
        os.chdir(WORK)
        counters = self._group.counters
        clock = counters if counters.count_cpu else LiveClock("/proc")
        harden(limits, self._group, self._program)
        shell = Shell(
            limits=limits,
            counters=counters,
            reaper=NamespaceReaper(),
            clock=clock,
            oom_score=oom_score,
            control=control,
            folders=(WORK,),
            shell=self._shell,
            environment=ENVIRONMENT,
        )
        return shell, os.open(WORK, os.O_RDONLY | os.O_DIRECTORY)

    def clear(self) -> None:
        """Nothing to do: all of a box ends with its last process."""


def _kernel_version() -> tuple[int, int]:
    major, minor, *_ = os.uname().release.split("-")[0].split(".")
    return int(major), int(minor)


def _enter_user_namespace() -> None:
    user, group = os.getuid(), os.getgid()
    kernel.set_dumpable(True)
    kernel.unshare(CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{BOX_ID} {user} 1"), ("gid_map", f"{BOX_ID} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    kernel.drop_bounding_set()  # It starts full in a new user namespace.
