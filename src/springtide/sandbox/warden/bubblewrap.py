"""Boxes made by the `bwrap` program, for hosts that grant namespaces to it but not to us.

The first process of the box is then a fresh interpreter inside, which receives its orders through an inherited file.
So the interpreter's own folder is visible in the box, read-only. Limits are those of processes; control groups, where
there are some, limit too but cannot be read from inside.
"""

from __future__ import annotations

import marshal
import os
import sys

from springtide.sandbox.warden import kernel
from springtide.sandbox.warden.box import Content, serve
from springtide.sandbox.warden.cgroups import NO_GROUP
from springtide.sandbox.warden.command import ENVIRONMENT, Shell
from springtide.sandbox.warden.limits import Limits
from springtide.sandbox.warden.privileges import become_nobody, harden
from springtide.sandbox.warden.processes import LiveClock, NamespaceReaper
from springtide.sandbox.warden.rootfs import BOX_ID, HOST, HOST_ETC, UNMAPPABLE_ZERO, WORK, Stage, written_etc

_ORDERS, _CONTROL = 3, 4
"""Descriptors inside."""
_PACKAGE = "/opt/sandbox"
"""Where this package is inside."""


class Bubblewrap:
    box_namespaces = 0

    def __init__(self, *, path: str, boot: str, program: bytes, read_only: tuple[str, ...]) -> None:
        self._path, self._program = path, program
        self._python = os.path.realpath(sys.executable)
        self._package = os.path.dirname(os.path.dirname(boot))
        self._boot = f"{_PACKAGE}/warden/{os.path.basename(boot)}"
        self._stage = Stage((*read_only, sys.base_prefix))

    def prepare(self) -> None:
        """Become the user that bwrap runs as, and try it once for its own words if it fails."""
        become_nobody()
        kernel.set_dumpable(True)
        kernel.die_with_parent()
        if not self._path:
            raise OSError("bwrap is not installed")
        reader, writer = os.pipe()
        actions = ((os.POSIX_SPAWN_DUP2, writer, 2),)
        pid = os.posix_spawn(self._path, self._arguments(1 << 20, "/usr/bin/true"), {}, file_actions=actions)
        os.close(writer)
        status = os.waitpid(pid, 0)[1]
        message = os.read(reader, 4096).decode(errors="replace").strip()
        os.close(reader)
        if status != 0:
            raise OSError(message or "bwrap failed without a message")

    def enter(self, limits: Limits, control: int, content: Content) -> tuple[Shell, int]:
        """Turns into bwrap: does not return."""
        numbers = [getattr(limits, name) for name in Limits.FIELDS]
        orders = os.memfd_create("orders")
        with os.fdopen(os.dup(orders), "wb") as file:
            marshal.dump((numbers, content, self._program), file)
        os.lseek(orders, 0, os.SEEK_SET)
        first, second = os.dup(orders), os.dup(control)
        os.dup2(first, _ORDERS)
        os.dup2(second, _CONTROL)
        arguments = self._arguments(limits.disk_bytes, self._python, "-I", "-S", self._boot, "box")
        os.execve(self._path, arguments, {})

    def _arguments(self, disk_bytes: int, *command: str) -> list[str]:
        options = ["bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--as-pid-1"]
        options += ["--uid", str(BOX_ID), "--gid", str(BOX_ID), "--hostname", HOST, "--cap-drop", "ALL"]
        for folder in ("/tmp", WORK):
            options += ["--size", str(disk_bytes), "--tmpfs", folder]
        for path in self._stage.binds:
            options += ["--ro-bind", path, path]
        options += ["--symlink", "../tmp", "/var/tmp", "--ro-bind", self._package, _PACKAGE]
        for name, target in self._stage.links.items():
            options += ["--symlink", target, f"/{name}"]
        for name, text in written_etc().items():
            options += ["--ro-bind-data", str(_inherited_file(text)), f"/etc/{name}"]
        for name in (*HOST_ETC, "alternatives"):
            options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        options += ["--proc", "/proc"]
        for name in self._stage.hidden:
            options += ["--ro-bind-data", str(_inherited_file("")), f"/proc/{name}"]
        options += ["--remount-ro", "/proc", "--dev", "/dev"]
        # The group that may count memory is not known here, so it is done in any case.
        options += ["--dev-bind", f"/dev/{UNMAPPABLE_ZERO}", "/dev/zero", "--remount-ro", "/dev"]
        return [*options, "--remount-ro", "/", "--chdir", WORK, "--", *command]

    def clear(self) -> None:
        """Nothing to do: all of a box ends with bwrap."""


def _inherited_file(text: str) -> int:
    descriptor = os.memfd_create("etc", 0)
    os.write(descriptor, text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def be_box() -> None:
    """The first process inside."""
    with os.fdopen(_ORDERS, "rb") as file:
        numbers, content, program = marshal.load(file)
    os.closerange(_CONTROL + 1, 1 << 16)  # What bwrap read its files from.
    limits = Limits(*numbers)
    os.set_inheritable(_CONTROL, False)
    kernel.ignore_interrupts()
    kernel.rename_process(b"init")
    kernel.forbid_new_privileges()
    clock = LiveClock("/proc")
    harden(limits, NO_GROUP, program)
    shell = Shell(
        limits=limits,
        counters=NO_GROUP.counters,
        reaper=NamespaceReaper(),
        clock=clock,
        oom_score=-1,
        control=_CONTROL,
        folders=(WORK, "/tmp"),
        shell="/usr/bin/sh" if os.path.islink("/bin") else "/bin/sh",
        environment=ENVIRONMENT,
    )
    serve(_CONTROL, shell, os.open(WORK, os.O_RDONLY | os.O_DIRECTORY), content)
