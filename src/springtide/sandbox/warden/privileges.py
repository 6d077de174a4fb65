"""What a process gives up before it has anything to do with untrusted code."""

from __future__ import annotations

import os

from springtide.sandbox.warden import kernel
from springtide.sandbox.warden.cgroups import Group
from springtide.sandbox.warden.limits import OWN_PROCESSES, Limits
from springtide.sandbox.warden.rootfs import BOX_ID


def become_nobody() -> None:
    """Give up root for an id that owns nothing, if this is root."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(BOX_ID, BOX_ID, BOX_ID)
        os.setresuid(BOX_ID, BOX_ID, BOX_ID)


def harden(limits: Limits, group: Group, program: bytes, other_processes: int = OWN_PROCESSES) -> None:
    """The last steps before a box serves: nothing here can be taken back, and every command inherits it."""
    limits.apply_to_process(group, other_processes)
    kernel.drop_capabilities()
    kernel.set_dumpable(False)
    kernel.die_with_parent()
    if program:
        kernel.install_filter(program)
