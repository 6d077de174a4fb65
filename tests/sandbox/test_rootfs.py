"""The file system of a box where the host lacks something that it has here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from springtide.ports.sandbox import SandboxLevel
from springtide.sandbox import LevelReport
from springtide.sandbox.warden import boot

PROLOGUE = """
import os, sys
sys.path.insert(0, {warden!r})
import boot
boot._enter_packages()
from springtide.sandbox.warden import cgroups, kernel, namespaces, rootfs
from springtide.sandbox.warden.limits import Limits
"""

IN_A_BOX = """
kernel.forbid_new_privileges()
groups = cgroups.plant()
group = groups.create()
pid = os.fork()
if pid == 0:
    group.attach()
    group.open()
    isolation = namespaces.Namespaces(group=group, program=b"", read_only=(), user={user})
    isolation.prepare()
    isolation._stage.overlay = False
    limits = Limits(5.0, 64 << 20, 16, 1 << 20, 1 << 16)
    limits.apply_to_group(group)
    inner = kernel.fork_into(isolation.box_namespaces)
    if inner == 0:
        shell, work = isolation.enter(limits, os.pipe()[0], {{}})
        result = shell.run({command!r}, b"", 5.0)
        os.write(1, result.output)
        os._exit(0)
    os.waitpid(inner, 0)
    os._exit(0)
os.waitpid(pid, 0)
groups.remove()
"""


def in_a_bare_warden(script: str, **values: object) -> str:
    warden = str(Path(boot.__file__).parent)
    text = PROLOGUE.format(warden=warden) + script.format(**values)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", text], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("level", [SandboxLevel.NAMESPACES, SandboxLevel.USER_NAMESPACES])
def test_without_an_overlay_a_copy_takes_its_place(
    level: SandboxLevel, reports: dict[SandboxLevel, LevelReport]
) -> None:
    if not reports[level].usable:
        pytest.skip(f"no {level} on this host: {reports[level].reason}")
    command = (
        b"id -un; touch f /tmp/g && ls; stat -f -c %T / ; stat -c %a /tmp; touch /etc/x; cat /dev/zero > big; ls /"
    )
    lines = in_a_bare_warden(IN_A_BOX, user=level is SandboxLevel.USER_NAMESPACES, command=command).splitlines()
    assert lines[:4] == ["agent", "f", "tmpfs", "1777"]
    assert lines[4].startswith("touch: cannot touch '/etc/x'")
    assert lines[5].endswith("No space left on device")
    assert "root" not in lines[6:]
    assert "usr" in lines[6:]


UNCOUNTED = IN_A_BOX.replace("cgroups.plant()", "cgroups.GroupTree(1, {{}})")


def test_where_nothing_counts_memory_no_device_gives_any(reports: dict[SandboxLevel, LevelReport]) -> None:
    """/dev/zero reads as ever, but cannot be mapped; files can."""
    if not reports[SandboxLevel.USER_NAMESPACES].usable:
        pytest.skip(f"no user namespaces on this host: {reports[SandboxLevel.USER_NAMESPACES].reason}")
    program = (
        "import mmap, os\n"
        "print(os.read(os.open('/dev/zero', 0), 2))\n"
        "open('/work/f', 'wb').write(bytes(4096))\n"
        "for name in ('/work/f', '/dev/zero'):\n"
        "    try:\n"
        "        print(mmap.mmap(os.open(name, 2), 4096)[:1])\n"
        "    except OSError as error:\n"
        "        print(error.strerror)\n"
    )
    shown = in_a_bare_warden(UNCOUNTED, user=True, command=f'python3 -c "{program}"'.encode())
    if "python3" in shown:
        pytest.skip("there is no python3 in the box")
    assert shown.splitlines() == [r"b'\x00\x00'", r"b'\x00'", "No such device"]


def test_what_an_outer_namespace_mounted_below_comes_along_read_only() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount something for an outer namespace to have")
    script = """
kernel.unshare(kernel.CLONE_NEWNS)
kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
kernel.mount("t", "/mnt", "tmpfs", 0)
os.makedirs("/mnt/tree/below")
kernel.mount("t", "/mnt/tree/below", "tmpfs", 0, "mode=777")
os.mkdir("/mnt/shown")
kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
kernel.bind("/mnt/tree", "/mnt/shown", kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV)
for line in open("/proc/self/mountinfo"):
    if "/mnt/shown" in line:
        print(line.split()[4], line.split()[5])
"""
    shown = dict(line.split() for line in in_a_bare_warden(script).splitlines())
    assert set(shown) == {"/mnt/shown", "/mnt/shown/below"}
    assert all(options.startswith("ro,nosuid,nodev") for options in shown.values())
