"""System calls that the standard library lacks, through ctypes. Each raises OSError naming what was refused."""

from __future__ import annotations

import ctypes
import os
from errno import EINVAL
from struct import pack

from springtide.sandbox.warden import syscalls

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000

SIGINT, SIGKILL, SIGPIPE, SIGCHLD, SIGXCPU, SIGXFSZ = 2, 9, 13, 17, 24, 25

_MNT_DETACH = 2
_AT_RECURSIVE = 0x8000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_SECCOMP = 1, 4, 15, 22
_PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 24, 36, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_locked_libc = ctypes.PyDLL(None, use_errno=True)
"""Keeps the interpreter lock over the call, as a fork must."""

# Looked up once here, not once in each new box.
_syscall, _locked_syscall = _libc.syscall, _locked_libc.syscall
_mount, _umount, _unshare, _prctl_call, _capset = _libc.mount, _libc.umount2, _libc.unshare, _libc.prctl, _libc.capset
_syscall.restype = _locked_syscall.restype = ctypes.c_long
_mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_prctl_call.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    result = _mount(source.encode(), target.encode(), kind.encode() or None, flags, options.encode() or None)
    _check(result, f"mount of {kind or source} on {target}")


def bind(source: str, target: str, flags: int = 0) -> None:
    """A bind mount; it inherits the flags of the mount that `source` lies on, to which `flags` are added.

    What is mounted below `source` is left out, except where an outer user namespace mounted it and forbids that.
    """
    whole = False
    try:
        mount(source, target, "", MS_BIND)
    except OSError as error:
        if error.errno != EINVAL:
            raise
        mount(source, target, "", MS_BIND | MS_REC)
        whole = True
    if flags and whole:
        attributes = pack("<4Q", flags, 0, 0, 0)  # These flags have the same values there.
        size = ctypes.c_size_t(len(attributes))
        result = _syscall(syscalls.number("mount_setattr"), -100, target.encode(), _AT_RECURSIVE, attributes, size)
        _check(result, f"mount_setattr on {target}")
    elif flags:
        mount("", target, "", MS_BIND | MS_REMOUNT | flags)


def detach_here() -> None:
    """Lazily unmount what is mounted at the working directory."""
    _check(_umount(b".", _MNT_DETACH), "umount of the old root")


def pivot_here() -> None:
    """Make the working directory's mount the root, and drop the old root with everything below it."""
    _check(_syscall(syscalls.number("pivot_root"), b".", b"."), "pivot_root")
    detach_here()
    os.chdir("/")


def unshare(flags: int) -> None:
    _check(_unshare(flags), "unshare of namespaces")


def fork_into(flags: int) -> int:
    """`os.fork` whose child starts in new namespaces. 0 in the child."""
    if not flags:
        return os.fork()
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(_locked_syscall(syscalls.number("clone"), ctypes.c_ulong(flags | SIGCHLD), None, None, None, None))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return _check(pid, "clone into new namespaces")


def sethostname(name: bytes) -> None:
    _check(_libc.sethostname(name, len(name)), "sethostname")


def _prctl(option: int, value: int, what: str, pointer: int = 0) -> None:
    _check(_prctl_call(option, value, pointer, 0, 0), what)


def die_with_parent() -> None:
    """Be killed when the parent thread ends. Lost on a change of user id: call it after."""
    _prctl(_PR_SET_PDEATHSIG, SIGKILL, "PR_SET_PDEATHSIG")


def adopt_orphans() -> None:
    """Orphaned descendants become children of this process instead of the machine's first one."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def set_dumpable(dumpable: bool) -> None:
    """A process that is not dumpable keeps its memory, files and root from others of the same user id."""
    _prctl(_PR_SET_DUMPABLE, int(dumpable), "PR_SET_DUMPABLE")


def forbid_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "PR_SET_NO_NEW_PRIVS")


def drop_bounding_set() -> None:
    """Nothing executed from here on can hold a capability; those held now stay until the user id changes."""
    capability = 0
    while _prctl_call(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()


def drop_capabilities() -> None:
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    _check(_capset(ctypes.byref(header), _NO_CAPABILITIES), "capset")


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def install_filter(program: bytes) -> None:
    """Install a seccomp filter for this process and all its descendants. Needs `forbid_new_privileges` before."""
    structure = _Program(len(program) // 8, program)
    address = ctypes.addressof(structure)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, "PR_SET_SECCOMP", address)


def watch_children() -> int:
    """A descriptor that is readable when a child has ended since it was last read. SIGCHLD is blocked from here on."""
    mask = (1 << (SIGCHLD - 1)).to_bytes(128, "little")
    _check(_libc.sigprocmask(0, mask, None), "sigprocmask")
    return _check(_libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK), "signalfd")


def ignore_interrupts() -> None:
    """The default action of SIGINT: Python's handler would let a box interrupt its own first process."""
    _libc.signal(SIGINT, ctypes.c_void_p(0))


def rename_process(name: bytes) -> None:
    """Show `name` and nothing else as command name and arguments, so that no path of the host shows in a box."""
    buffer = ctypes.create_string_buffer(name)
    _prctl(_PR_SET_NAME, ctypes.addressof(buffer), "PR_SET_NAME")
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, name, min(len(name), end - start - 1))


def landlock_version() -> int:
    """The ABI version of Landlock, 0 without it."""
    return max(0, int(_syscall(syscalls.LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def landlock_ruleset(attributes: bytes) -> int:
    size = ctypes.c_size_t(len(attributes))
    return _check(_syscall(syscalls.LANDLOCK_CREATE_RULESET, attributes, size, 0), "landlock_create_ruleset")


def landlock_allow(ruleset: int, rule: bytes) -> None:
    """Add a rule "below this path" (`struct landlock_path_beneath_attr`)."""
    _check(_syscall(syscalls.LANDLOCK_ADD_RULE, ruleset, 1, rule, 0), "landlock_add_rule")


def landlock_enforce(ruleset: int) -> None:
    _check(_syscall(syscalls.LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
