"""Which system calls a box may make: everything an ordinary program needs, minus the doors to the kernel and to others.

The filter is a binary decision tree over call numbers with the argument checks at its leaves. The tree keeps it short
to run, and cheap to install: the kernel walks it once per call number then, to find what is always allowed.
"""

from __future__ import annotations

from springtide.sandbox.warden.bpf import NEXT, Assembler
from springtide.sandbox.warden.syscalls import AUDIT_ARCH, LAST_REVIEWED, TABLES

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
EPERM, ENOSYS, EAFNOSUPPORT = _ERRNO | 1, _ERRNO | 38, _ERRNO | 97

_NUMBER_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET = 0, 4, 16
_NEW_NAMESPACES = 0x7E020000
_AF_UNIX = 1
_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_PERSONALITIES = (0, 0xFFFFFFFF, 0x0040000)
"""Plain Linux, the query, and no address randomisation (debuggers, some compilers)."""

_OTHER_PROCESSES = """
    ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd"""
_MOUNTS_AND_NAMESPACES = """
    mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr unshare setns"""
_KEY_RINGS = """
    keyctl add_key request_key"""
_LARGE_SURFACES = """
    bpf perf_event_open io_uring_setup io_uring_enter io_uring_register userfaultfd memfd_secret
    name_to_handle_at open_by_handle_at fanotify_init fanotify_mark lookup_dcookie nfsservctl
    mbind set_mempolicy set_mempolicy_home_node migrate_pages move_pages"""
_THE_MACHINE = """
    kexec_load kexec_file_load init_module finit_module delete_module create_module get_kernel_syms query_module reboot
    swapon swapoff acct quotactl quotactl_fd syslog sethostname setdomainname settimeofday clock_settime clock_adjtime
    adjtimex iopl ioperm modify_ldt vhangup uselib ustat sysfs _sysctl ioprio_set"""

DENIED = frozenset((_OTHER_PROCESSES + _MOUNTS_AND_NAMESPACES + _KEY_RINGS + _LARGE_SURFACES + _THE_MACHINE).split())

SELF_ONLY = frozenset({"prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"})
"""Allowed on the caller itself (first argument 0): the box's first process runs under the same user id."""

CHECKED = SELF_ONLY | {"clone", "socket", "socketpair", "ioctl", "personality", "setpriority"}
ABSENT = frozenset({"clone3"})
"""Its flags lie in memory, where a filter cannot look. ENOSYS makes libraries fall back to clone."""

UNCOUNTED = frozenset({"memfd_create", "shmget", "msgget", "semget", "mq_open", "mmap"})
"""Ways to memory that belongs to no process, which nothing limits without a control group. They are absent then; mmap
is refused only where it asks for shared memory without a file. The one file that gives the same, /dev/zero, cannot be
mapped in such a box (`rootfs.UNMAPPABLE_ZERO`)."""


def build_filter(machine: str, *, memory_is_counted: bool = True) -> bytes:
    """The filter program for `machine`, an array of `struct sock_filter`.

    `memory_is_counted`: a control group limits the memory of a box.
    """
    named = DENIED | CHECKED | ABSENT if memory_is_counted else DENIED | CHECKED | ABSENT | UNCOUNTED
    calls = {number: name for name, number in TABLES[machine].items() if name in named}
    code = Assembler()
    code.load(_ARCH_OFFSET)
    code.if_equal(AUDIT_ARCH[machine], otherwise="foreign")
    code.load(_NUMBER_OFFSET)
    code.if_at_least(LAST_REVIEWED + 1, otherwise="known")
    code.give(ENOSYS)
    code.label("foreign")
    code.give(KILL_PROCESS)
    code.label("known")
    _decide(code, _ranges(calls), "t")
    return code.assemble()


def _ranges(calls: dict[int, str]) -> list[tuple[int, str]]:
    """Cut the call numbers into runs with one fate: (first number, fate), ascending. The empty fate is "allowed"."""
    fates = [""] * (LAST_REVIEWED + 1)
    for number, name in calls.items():
        fates[number] = "denied" if name in DENIED else name
    return [(n, fate) for n, fate in enumerate(fates) if n == 0 or fate != fates[n - 1]]


def _decide(code: Assembler, ranges: list[tuple[int, str]], name: str) -> None:
    if len(ranges) == 1:
        _leaf(code, ranges[0][1], name)
        return
    middle = len(ranges) // 2
    code.if_at_least(ranges[middle][0], then=name + "r")
    _decide(code, ranges[:middle], name + "l")
    code.label(name + "r")
    _decide(code, ranges[middle:], name + "h")


def _leaf(code: Assembler, fate: str, name: str) -> None:
    yes, no = name + "+", name + "-"
    if fate == "":
        code.give(ALLOW)
        return
    if fate == "denied":
        code.give(EPERM)
        return
    if fate in ABSENT or (fate in UNCOUNTED and fate != "mmap"):
        code.give(ENOSYS)
        return
    refusal = EPERM
    if fate in SELF_ONLY:
        _load_argument(code, 0)
        code.if_equal(0, yes, no)
    elif fate == "clone":
        _load_argument(code, 0)
        code.if_any_bits(_NEW_NAMESPACES, no, yes)
    elif fate in ("socket", "socketpair"):
        refusal = EAFNOSUPPORT
        _load_argument(code, 0)
        code.if_equal(_AF_UNIX, yes, no)
    elif fate == "ioctl":
        _load_argument(code, 1)
        code.if_equal(_TIOCSTI, no)
        code.if_equal(_TIOCLINUX, no, yes)
    elif fate == "mmap":
        _load_argument(code, 3)
        code.if_any_bits(_MAP_ANONYMOUS, NEXT, yes)
        code.if_any_bits(_MAP_SHARED, no, yes)
    elif fate == "personality":
        _load_argument(code, 0)
        for allowed in _PERSONALITIES:
            code.if_equal(allowed, yes, no if allowed == _PERSONALITIES[-1] else NEXT)
    else:
        assert fate == "setpriority", fate
        _load_argument(code, 0)
        code.if_equal(0, otherwise=no)
        _load_argument(code, 1)
        code.if_equal(0, yes, no)
    code.label(yes)
    code.give(ALLOW)
    code.label(no)
    code.give(refusal)


def _load_argument(code: Assembler, index: int) -> None:
    """The low half of an argument: all checked ones are ints to the kernel, which ignores the high half."""
    code.load(_ARGS_OFFSET + 8 * index)
