"""Attempts to break out of a box, to look out of it, or to exhaust the host, each with what shows that it failed.

The battery plants a secret on the host (in the environment, in a file, behind an abstract socket). An attempt is
contained when the command ends as it must, its output shows the refusal, and the secret is nowhere in it. Attempts that
make raw system calls use the box's `python3`; they are left out where it has none.
"""

import os
import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from springtide.ports.sandbox import CommandEnd, CommandResult, Limits, Sandbox
from springtide.sandbox.warden.syscalls import TABLES, machine

LIMITS = Limits(
    wall_seconds=30.0, cpu_seconds=60.0, memory_bytes=64 << 20, pids=16, disk_bytes=8 << 20, output_bytes=32 << 10
)
"""Time is plentiful, so that an attempt at another limit also ends at that one on a slow host, where a box close to its
memory limit can spend seconds in the kernel's search for pages."""
_FAILED = frozenset({CommandEnd.NONZERO, CommandEnd.SIGNAL})
_OK = frozenset({CommandEnd.OK})
_EPERM, _ENOSYS, _NO_FAMILY = "-1 1", "-1 38", "-1 97"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    command: str
    """For `/bin/sh`; `{pid}`, `{file}`, `{socket}` stand for what the battery planted."""
    ends: frozenset[CommandEnd] = _OK
    shows: str = ""
    """A regular expression that must be found in the output."""
    after: str = ""
    """A second command in the same box, whose output must be empty: what the first left behind."""
    wall_seconds: float | None = None
    cpu_seconds: float = LIMITS.cpu_seconds
    exact_limits: bool = False
    """The end needs a control group's counters or our own disk; without them any failure will do."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    contained: bool
    end: CommandEnd
    detail: str = ""


class Planted(msgspec.Struct, frozen=True, kw_only=True):
    """What is there to be found on the host."""

    secret: str
    file: Path
    socket: str
    pid: int


@contextmanager
def planted() -> Iterator[Planted]:
    """Plant the secret for as long as the context lasts."""
    secret = f"secret-{os.urandom(12).hex()}"
    name = f"springtide-battery-{os.getpid()}"
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="battery-"))
        Path(folder).chmod(0o755)
        file = Path(folder, "secret.txt")
        file.write_text(secret)
        os.environ["BATTERY_SECRET"] = secret
        stack.callback(os.environ.pop, "BATTERY_SECRET")
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(f"\0{name}")
        listener.listen()
        yield Planted(secret=secret, file=file, socket=name, pid=os.getpid())


async def has_python(sandbox: Sandbox) -> bool:
    box = await sandbox.open(files={}, limits=LIMITS)
    try:
        return (await box.run("python3 -c pass")).end is CommandEnd.OK
    finally:
        await box.close()


async def attempt_once(sandbox: Sandbox, attempt: Attempt, host: Planted, *, counted: bool = True) -> Verdict:
    """Make one attempt in a box of its own. `counted`: the host has control groups that count what was refused."""
    limits = msgspec.structs.replace(LIMITS, cpu_seconds=attempt.cpu_seconds)
    box = await sandbox.open(files={"own.txt": b"own"}, limits=limits)
    try:
        command = attempt.command.replace("{pid}", str(host.pid))
        command = command.replace("{file}", str(host.file)).replace("{socket}", host.socket)
        result = await box.run(command, wall_seconds=attempt.wall_seconds)
        left = await box.run(attempt.after) if attempt.after else None
    finally:
        await box.close()
    problem = _problem(attempt, result, left, host.secret, counted)
    return Verdict(name=attempt.name, contained=not problem, end=result.end, detail=problem)


def _problem(attempt: Attempt, result: CommandResult, left: CommandResult | None, secret: str, counted: bool) -> str:
    text = result.output.decode(errors="replace")
    ends = (
        attempt.ends
        if counted or not attempt.exact_limits
        else attempt.ends | _FAILED | {CommandEnd.TIMEOUT, CommandEnd.CPU_LIMIT}
    )
    if secret in text:
        return f"the secret came out: {text[:200]!r}"
    if result.end not in ends:
        return f"it ended as {result.end}, not as {' or '.join(sorted(ends))}: {text[:200]!r} {result.detail}"
    if attempt.shows and not re.search(attempt.shows, text):
        return f"its output does not show {attempt.shows!r}: {text[:200]!r}"
    if left is not None and left.output.strip():
        return f"it left something: {left.output[:200]!r}"
    return ""


def attempts(*, python: bool) -> list[Attempt]:
    """All attempts; without `python` only those that a shell can make."""
    return [*_exhausting(), *_staying(), *_looking(), *_escaping(), *(_calling() if python else [])]


def _exhausting() -> list[Attempt]:
    return [
        Attempt(
            name="fork bomb",
            command="bomb() { bomb | bomb; }; bomb",
            ends=frozenset({CommandEnd.PIDS_LIMIT}),
            exact_limits=True,
        ),
        Attempt(
            name="fork bomb in the background",
            command="b() { b | b & }; b; sleep 0.3; echo done",
            ends=frozenset({CommandEnd.OK, CommandEnd.PIDS_LIMIT}),
            exact_limits=True,
        ),
        Attempt(
            name="memory bomb",
            command="exec head -c 300m /dev/zero | tail -c 300m",
            ends=frozenset({CommandEnd.OOM}),
            exact_limits=True,
        ),
        Attempt(
            name="memory bomb of many",
            command="for i in 1 2 3; do (head -c 40m /dev/zero; sleep 1) | tail -c 40m > /dev/null & done; "
            "wait; exit 1",
            ends=frozenset({CommandEnd.OOM}),
            exact_limits=True,
        ),
        Attempt(name="disk filler", command="cat /dev/zero > big", ends=frozenset({CommandEnd.DISK_FULL})),
        Attempt(name="disk filler in /tmp", command="cat /dev/zero > /tmp/a", ends=frozenset({CommandEnd.DISK_FULL})),
        Attempt(
            name="files without end",
            command="i=0; while : > f$i; do i=$((i+1)); done; exit 1",
            ends=frozenset({CommandEnd.DISK_FULL}),
            exact_limits=True,
        ),
        Attempt(
            name="huge sparse file", command="truncate -s 1T big", ends=frozenset({CommandEnd.DISK_FULL, *_FAILED})
        ),
        Attempt(name="endless output", command="cat /dev/zero", ends=frozenset({CommandEnd.OUTPUT_LIMIT})),
        Attempt(
            name="endless output by a child",
            command="cat /dev/zero & sleep 5",
            ends=frozenset({CommandEnd.OUTPUT_LIMIT}),
        ),
        Attempt(
            name="endless loop", command="while :; do :; done", ends=frozenset({CommandEnd.CPU_LIMIT}), cpu_seconds=0.2
        ),
        Attempt(
            name="endless loops side by side",
            command="for i in 1 2 3 4 5 6; do while :; do :; done & done; wait",
            ends=frozenset({CommandEnd.CPU_LIMIT}),
            cpu_seconds=0.2,
        ),
    ]


def _staying() -> list[Attempt]:
    no_others = "cat /proc/[0-9]*/comm 2>/dev/null | grep -x sleep"
    return [
        Attempt(
            name="deaf to signals",
            command="trap '' TERM INT HUP QUIT; while :; do sleep 60; done",
            ends=frozenset({CommandEnd.TIMEOUT}),
            wall_seconds=0.3,
            after=no_others,
        ),
        Attempt(name="background daemon", command="(setsid nohup sleep 300 >/dev/null 2>&1 &) ; :", after=no_others),
        Attempt(
            name="daemon that holds the output", command="sleep 300 & echo started", shows="started", after=no_others
        ),
        Attempt(
            name="killing the first process", command="kill -9 1; kill -STOP 1; kill -INT 1; echo alive", shows="alive"
        ),
    ]


def _looking() -> list[Attempt]:
    denied = "Permission denied|No such file|Operation not permitted"
    return [
        Attempt(name="secret in the environment", command="env; cat /proc/*/environ 2>/dev/null; :"),
        Attempt(name="secret in a file of the host", command="cat {file}", ends=_FAILED, shows="No such file"),
        Attempt(
            name="link to a file of the host",
            command="ln -s {file} link; cat link; cat ../../..{file}",
            ends=_FAILED,
            shows="No such file",
        ),
        Attempt(name="password hashes", command="cat /etc/shadow", ends=_FAILED, shows=denied),
        Attempt(
            name="home folders",
            command="ls -A /root /home /run /sys /var/lib 2>/dev/null | grep -v ':$' | grep .",
            ends=_FAILED,
        ),
        Attempt(name="processes of the host", command="kill -0 {pid} || test ! -e /proc/{pid}/cwd && echo unseen"),
        Attempt(name="root of the first process", command="ls /proc/1/root/", ends=_FAILED, shows=denied),
        Attempt(name="files of the first process", command="ls /proc/1/fd /proc/1/cwd/", ends=_FAILED, shows=denied),
        Attempt(name="memory of the first process", command="head -c 1 /proc/1/mem", ends=_FAILED, shows=denied),
        Attempt(name="command line of the kernel", command="test ! -s /proc/cmdline"),
        Attempt(name="memory of the kernel", command="head -c 1 /proc/kcore", ends=_FAILED, shows=denied),
        Attempt(name="log of the kernel", command="head -c 1 /proc/kmsg; dmesg", ends=_FAILED, shows=denied),
        Attempt(name="inherited descriptors", command="ls /proc/self/fd | sort -n | tail -n +5 | grep .", ends=_FAILED),
        Attempt(name="network interfaces", command="tail -n +3 /proc/net/dev | grep -v '^ *lo:'", ends=_FAILED),
    ]


def _escaping() -> list[Attempt]:
    denied = "Permission denied|Read-only|No such file|Operation not permitted|cannot|nonexistent"
    return [
        Attempt(name="system request key", command="echo b > /proc/sysrq-trigger", ends=_FAILED, shows=denied),
        Attempt(
            name="handler of core dumps",
            command="echo '|/x' > /proc/sys/kernel/core_pattern",
            ends=_FAILED,
            shows=denied,
        ),
        Attempt(
            name="settings of the network", command="echo 1 > /proc/sys/net/ipv4/ip_forward", ends=_FAILED, shows=denied
        ),
        Attempt(
            name="score at the memory limit", command="echo 0 > /proc/self/oom_score_adj", ends=_FAILED, shows=denied
        ),
        Attempt(name="programs of the host", command="touch /usr/bin/springtide", ends=_FAILED, shows=denied),
        Attempt(name="own programs", command="rm /bin /lib; mv /usr /u; rm -r /etc", ends=_FAILED, shows=denied),
        Attempt(name="account files", command="echo x >> /etc/passwd", ends=_FAILED, shows=denied),
        Attempt(name="device node", command="mknod disk b 8 0", ends=_FAILED, shows=denied),
        Attempt(name="mounting", command="mount -t tmpfs none /tmp", ends=_FAILED),
        Attempt(name="unmounting", command="umount -l /proc", ends=_FAILED),
        Attempt(name="remounting", command="mount -o remount,rw /usr", ends=_FAILED),
        Attempt(name="new namespaces", command="unshare -r id", ends=_FAILED, shows=denied),
        Attempt(name="namespaces of the first process", command="nsenter -t 1 -m -p id", ends=_FAILED),
        Attempt(name="changing the root", command="chroot / id", ends=_FAILED, shows=denied),
        Attempt(name="control groups", command="ls /sys/fs/cgroup", ends=_FAILED, shows=denied),
        Attempt(
            name="programs that run as root",
            command="su -c id </dev/null & sleep 0.1; cat /proc/$!/status || echo Uid: none",
            shows=r"Uid:\s+(61000\s+61000\s+61000|none)",
        ),
        Attempt(
            name="privileges",
            command="cat /proc/self/status",
            shows=r"(?s)CapInh:\s*0+\nCapPrm:\s*0+\nCapEff:\s*0+\nCapBnd:\s*0+\nCapAmb:\s*0+\nNoNewPrivs:\s*1\nSeccomp:\s*2",
        ),
    ]


_CALLS: list[tuple[str, str, str, str]] = [
    ("being traced", "ptrace", "0,0,0,0", _EPERM),
    ("tracing the first process", "ptrace", "16,1,0,0", _EPERM),
    ("reading another's memory", "process_vm_readv", "1,0,0,0,0,0", _EPERM),
    ("mount", "mount", "b'x',b'/tmp',b'tmpfs',0,None", _EPERM),
    ("umount", "umount2", "b'/proc',2", _EPERM),
    ("pivot_root", "pivot_root", "b'/tmp',b'/tmp'", _EPERM),
    ("open_tree", "open_tree", "-100,b'/',1", _EPERM),
    ("fsopen", "fsopen", "b'tmpfs',0", _EPERM),
    ("unshare, user", "unshare", "0x10000000", _EPERM),
    ("unshare, mount", "unshare", "0x00020000", _EPERM),
    ("unshare, network", "unshare", "0x40000000", _EPERM),
    ("setns", "setns", "os.open('/proc/self/ns/net',0),0", _EPERM),
    ("clone, user namespace", "clone", "0x10000011,0,0,0,0", _EPERM),
    ("clone3", "clone3", "None,0", _ENOSYS),
    ("key ring", "keyctl", "0,-3,0,0,0", _EPERM),
    ("adding a key", "add_key", "b'user',b'k',b'v',1,-3", _EPERM),
    ("asking for a key", "request_key", "b'user',b'k',None,-3", _EPERM),
    ("bpf", "bpf", "0,None,0", _EPERM),
    ("performance events", "perf_event_open", "None,0,-1,-1,0", _EPERM),
    ("io_uring", "io_uring_setup", "1,None", _EPERM),
    ("userfaultfd", "userfaultfd", "0", _EPERM),
    ("kexec", "kexec_load", "0,0,None,0", _EPERM),
    ("kernel module", "init_module", "None,0,b''", _EPERM),
    ("reboot", "reboot", "0xfee1dead,672274793,0,None", _EPERM),
    ("swap", "swapon", "b'/tmp/x',0", _EPERM),
    ("host name", "sethostname", "b'x',1", _EPERM),
    ("clock", "settimeofday", "None,None", _EPERM),
    ("file handles", "open_by_handle_at", "0,None,0", _EPERM),
    ("fanotify", "fanotify_init", "0,0", _EPERM),
    ("executable data", "personality", "0x0400000", _EPERM),
    ("typing for another", "ioctl", "0,0x5412,b'x'", _EPERM),
    ("limits of the first process", "prlimit64", "1,0,None,None", _EPERM),
    ("schedule of the first process", "sched_setscheduler", "1,5,bytes(4)", _EPERM),
    ("priority of the user", "setpriority", "2,0,19", _EPERM),
    ("IPv4, stream", "socket", "2,1,0", _NO_FAMILY),
    ("IPv4, datagram", "socket", "2,2,0", _NO_FAMILY),
    ("IPv6", "socket", "10,1,0", _NO_FAMILY),
    ("netlink", "socket", "16,3,0", _NO_FAMILY),
    ("packets", "socket", "17,3,0", _NO_FAMILY),
    ("crypto sockets", "socket", "38,5,0", _NO_FAMILY),
    ("the hypervisor's sockets", "socket", "40,1,0", _NO_FAMILY),
]
"""What, by which call, with which arguments, and what it must answer: result and error number."""

_HOARDS = {
    "memory in nameless files": "import os;[os.write(os.memfd_create('m'),bytes(4<<20)) for _ in range(80)]",
    "memory in shared mappings": "import mmap;"
    "k=[mmap.mmap(-1,4<<20) for _ in range(80)];[m.write(bytes(4<<20)) for m in k]",
    "memory in segments": "import ctypes;c=ctypes.CDLL(None);c.shmat.restype=ctypes.c_void_p;"
    "[ctypes.memset(c.shmat(c.shmget(0,4<<20,0o666),None,0),1,4<<20) for _ in range(80)]",
    "memory in shared mappings of a device": "import mmap,os;z=os.open('/dev/zero',2);"
    "k=[mmap.mmap(z,4<<20) for _ in range(80)];[m.write(bytes(4<<20)) for m in k]",
}
"""Programs that take 320 MB in ways that belong to no process."""


def _calling() -> list[Attempt]:
    """Raw system calls, with arguments that would do no harm if they went through."""
    numbers = TABLES[machine()]
    raw = [
        Attempt(
            name=f"call: {name}",
            command='python3 -c "import ctypes,os;c=ctypes.CDLL(None,use_errno=True).syscall;c.restype=ctypes.c_long;'
            f'print(c({numbers[call]},{arguments}),ctypes.get_errno())"',
            shows=f"^{expected}$",
        )
        for name, call, arguments, expected in _CALLS
    ]
    connect = "import socket;s=socket.socket(socket.AF_UNIX);s.connect(chr(0)+'{socket}');print(s.recv(99))"
    return [
        *raw,
        *(
            Attempt(
                name=name,
                command=f'python3 -c "{program}"',
                ends=frozenset({CommandEnd.OOM}),
                exact_limits=True,
            )
            for name, program in _HOARDS.items()
        ),
        Attempt(
            name="abstract socket of the host",
            command=f'python3 -c "{connect}"',
            ends=_FAILED,
            shows="ConnectionRefused|PermissionError",
        ),
    ]
