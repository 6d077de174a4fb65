"""The process that owns all berths of a trainer, and that outlives the trainer just long enough to clear up.

The trainer's end shows as the end of the control socket, or of the trainer's process while someone else holds that
socket. Everything a berth started is killed by the kernel when the berth ends; control groups are emptied and removed
here. If the warden is killed too, the kernel kills the berths, and the next warden removes the empty groups.
"""

from __future__ import annotations

import _socket
import gc
import marshal
import os
import select

from springtide.sandbox import wire
from springtide.sandbox.warden import kernel
from springtide.sandbox.warden.berth import LOST, OUT_OF_MEMORY, Isolation, keep_berth
from springtide.sandbox.warden.bubblewrap import Bubblewrap
from springtide.sandbox.warden.cgroups import Group, GroupTree, plant
from springtide.sandbox.warden.kernel import SIGKILL
from springtide.sandbox.warden.namespaces import Namespaces
from springtide.sandbox.warden.owner import leftovers, own_name
from springtide.sandbox.warden.seccomp import build_filter
from springtide.sandbox.warden.shortage import Shortage
from springtide.sandbox.warden.syscalls import machine
from springtide.sandbox.warden.unsafe import Bare, remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedReader

_TEMPORARY = "/tmp"
_TRIAL_LIMITS = (5.0, 64 << 20, 16, 1 << 20, 4096)
_TRIAL_COMMAND, _TRIAL_OUTPUT = b"echo springtide", b"springtide\n"
_ON_THE_HOST = ("landlock", "none")
"""Levels that need a folder of the host."""
_NOT_SET_UP = 5
"""Exit code of a berth whose level could not be had; it has told the trainer why."""


class _Berth:
    def __init__(self, number: int, pid: int, group: Group, folder: str) -> None:
        self.number, self.pid, self.group, self.folder = number, pid, group, folder
        self.status: int | None = None
        try:
            self.ended = os.pidfd_open(pid)
        except OSError:
            self.kill()
            os.waitpid(pid, 0)
            raise

    def kill(self) -> None:
        """Unless it has been collected: its number may be a stranger's by then."""
        if self.status is None:
            os.kill(self.pid, SIGKILL)


class Warden:
    def __init__(self, *, control: int, boot: str) -> None:
        self._control = _socket.socket(fileno=control)
        self._boot = boot
        self._name = own_name()
        self._poll = select.poll()
        self._berths: dict[int, _Berth] = {}
        self._groups = GroupTree(1, {})
        self._program = b""
        self._level = ""
        self._bubblewrap = ""
        self._read_only: tuple[str, ...] = ()
        self._started = 0

    @property
    def _folder(self) -> str:
        return f"{_TEMPORARY}/{self._name}"

    def work(self) -> None:
        try:
            self._serve(self._become_warden())
        except Exception as error:
            self._tell(wire.reply(wire.FAILED, detail=repr(error)))
        finally:
            self._clear_up()

    def _become_warden(self) -> int:
        """Get ready to make boxes. A descriptor that becomes readable when the trainer ends."""
        os.set_inheritable(self._control.fileno(), False)
        trainer = os.pidfd_open(os.getppid())
        os.umask(0o022)
        kernel.ignore_interrupts()
        kernel.rename_process(b"springtide-warden")
        kernel.adopt_orphans()
        kernel.drop_bounding_set()
        kernel.forbid_new_privileges()
        for leftover in leftovers(_TEMPORARY):
            _remove_quietly(leftover)
        self._groups = _usable(plant())
        self._program = build_filter(machine(), memory_is_counted="memory" in self._groups.controllers)
        gc.collect()
        gc.freeze()
        gc.disable()
        return trainer

    def _serve(self, trainer: int) -> None:
        self._poll.register(self._control, select.POLLIN)
        self._poll.register(trainer, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == trainer:
                    return
                if descriptor != self._control.fileno():
                    self._bury(descriptor)
                elif not self._obey():
                    return

    def _obey(self) -> bool:
        """Do one request of the trainer. False when it has hung up."""
        body, descriptors = self._receive()
        if not body:
            return False
        match marshal.loads(body[wire.LENGTH.size :]):
            case ("start", [*levels], str(bubblewrap), [*read_only]):
                self._bubblewrap, self._read_only = bubblewrap, tuple(read_only)
                self._choose_level(levels)
            case ("probe", str(level), str(bubblewrap)):
                self._bubblewrap = bubblewrap
                reason = self._try_level(level)
                self._tell(wire.reply(wire.PROBED, detail=reason))
            case ("berth", int(number)):
                self._provide_berth(number, descriptors)
            case ("kill", int(number)):
                if number in self._berths:
                    self._berths[number].kill()
        return True

    def _receive(self) -> tuple[bytes, list[int]]:
        """One frame of the control socket, which keeps message boundaries, and the descriptors that came with it."""
        room = _socket.CMSG_SPACE(4)
        body, extra, _, _ = self._control.recvmsg(1 << 16, room, _socket.MSG_CMSG_CLOEXEC)
        return body, [int.from_bytes(data[:4], "little") for _, _, data in extra]

    def _tell(self, frame: bytes) -> None:
        _send(self._control, frame)

    def _choose_level(self, levels: list[str]) -> None:
        reasons = []
        for level in levels:
            reason = self._try_level(level)
            if not reason:
                self._level = level
                break
            reasons.append(f"{level}: {reason}")
        controllers = ", ".join(self._groups.controllers)
        limits = f"control groups version {self._groups.version} ({controllers})" if controllers else "process limits"
        self._tell(wire.reply(wire.READY, detail="\n".join([self._level, limits, *reasons])))

    def _try_level(self, level: str) -> str:
        """Run one command in one box of this level. Empty when that works, else why it does not."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        number = -1
        reader = os.fdopen(os.dup(ours.fileno()), "rb")
        try:
            self._make_berth(number, theirs.detach(), level)
            opened = _ask(ours, reader, "open", _TRIAL_LIMITS, {b"probe": b""})
            if opened[0] != wire.OPENED:
                return opened[1]
            answer = _ask(ours, reader, "run", _TRIAL_COMMAND, b"", 5.0)
            return "" if answer[2] == _TRIAL_OUTPUT else f"a command in it said {answer[2]!r} {answer[1]}"
        except (OSError, EOFError) as error:
            return str(error) or "it ended without a reason"
        finally:
            reader.close()
            ours.close()
            berth = self._berths.get(number)
            if berth is not None:
                self._bury(berth.ended)

    def _provide_berth(self, number: int, descriptors: list[int]) -> None:
        """A berth, or word of why there is none: what the host has no room for costs this berth and no other."""
        try:
            if not descriptors:
                raise OSError("the berth's socket did not arrive")
            self._make_berth(number, descriptors[0])
        except OSError as error:
            self._tell(wire.reply(wire.ENDED, end="sandbox_error", code=number, detail=str(error)))

    def _make_berth(self, number: int, control: int, level: str = "") -> None:
        """Fork a berth that serves `control`, which is closed here in any case. OSError when it cannot be had."""
        level = level or self._level
        self._started += 1
        folder = f"{self._folder}/{self._started}"
        try:
            if level in _ON_THE_HOST and not os.path.isdir(self._folder):
                os.mkdir(self._folder, 0o711)
            group = self._groups.create()
            try:
                pid = os.fork()
                if pid == 0:
                    self._be_berth(control, level, group, folder)
                berth = _Berth(number, pid, group, folder)
            except OSError:
                group.remove()
                raise
        finally:
            os.close(control)
        self._berths[number] = berth
        self._poll.register(berth.ended, select.POLLIN)

    def _be_berth(self, control: int, level: str, group: Group, folder: str) -> None:
        code = LOST
        try:
            os.dup2(control, 3, inheritable=False)
            os.closerange(4, 1 << 20)
            try:
                code = keep_berth(3, self._isolation(level, group, folder), group)
            except Exception as error:
                code = _NOT_SET_UP
                wire.send(3, wire.reply(wire.FAILED, detail=str(error).split("] ", 1)[-1]))  # Without the "[Errno".
        finally:
            os._exit(code)

    def _isolation(self, level: str, group: Group, folder: str) -> Isolation:
        if level == "bubblewrap":
            return Bubblewrap(path=self._bubblewrap, boot=self._boot, program=self._program, read_only=self._read_only)
        if level in _ON_THE_HOST:
            landlock = level == "landlock"
            program = self._program if landlock else b""
            return Bare(group=group, program=program, folder=folder, landlock=landlock, read_only=self._read_only)
        if level == "namespaces" and os.geteuid() != 0:
            raise OSError("this process is not root")
        user = level == "user_namespaces"
        return Namespaces(group=group, program=self._program, read_only=self._read_only, user=user)

    def _bury(self, ended: int) -> None:
        """Collect a berth that has ended (or kill it), remove what is its own, and tell the trainer how it ended."""
        berth = next(berth for berth in self._berths.values() if berth.ended == ended)
        berth.kill()
        self._collect(berth)
        self._poll.unregister(ended)
        os.close(ended)
        del self._berths[berth.number]
        end, detail = _verdict(os.waitstatus_to_exitcode(berth.status or 0), berth.group.last_shortage())
        berth.group.remove()
        _remove_quietly(berth.folder)
        if berth.number >= 0:
            self._tell(wire.reply(wire.ENDED, end=end, code=berth.number, detail=detail))

    def _collect(self, awaited: _Berth) -> None:
        """Wait for a berth that is ending; on the way collect others, and first processes that berths left to us."""
        by_pid = {berth.pid: berth for berth in self._berths.values()}
        while awaited.status is None:
            pid, status = os.waitpid(-1, 0)
            if pid in by_pid:
                by_pid[pid].status = status

    def _clear_up(self) -> None:
        for berth in self._berths.values():
            berth.kill()
        self._groups.remove()
        _collect_children()
        _remove_quietly(self._folder)


def _verdict(code: int, short: Shortage) -> tuple[str, str]:
    """How a box ended whose berth ended with exit code `code` (negative: a signal), and what that was."""
    if code == OUT_OF_MEMORY or (code == -SIGKILL and short.own):
        return "oom", f"exit code {code}"
    because = ": the host, not the box, was out of memory" if short.foreign else ""
    return "sandbox_error", f"exit code {code}{because}"


def _remove_quietly(folder: str) -> None:
    try:
        remove_tree(folder)
    except OSError:
        return  # Not ours, or not now; nothing runs in it, and no box waits for it.


def _collect_children() -> None:
    """Berths, and the boxes' first processes that they left to us."""
    children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
    while pids := os.pread(children, 1 << 16, 0).split():
        for pid in pids:
            os.kill(int(pid), SIGKILL)
        os.waitpid(-1, 0)


def _usable(groups: GroupTree) -> GroupTree:
    """The groups, if a process can really be moved into one; else none."""
    group = groups.create()
    pid = os.fork()
    if pid == 0:
        try:
            group.attach()
            os._exit(0)
        except BaseException:
            os._exit(1)
    usable = os.waitpid(pid, 0)[1] == 0
    group.remove()
    if not usable:
        groups.remove()
        return GroupTree(1, {})
    return groups


def _ask(berth: _socket.socket, reader: BufferedReader, *request: object) -> tuple[int, str, bytes]:
    """Kind, detail and payload of the reply. EOFError when the berth ended before it."""
    _send(berth, wire.request(*request))
    head = reader.read(wire.REPLY.size)
    if len(head) < wire.REPLY.size:
        raise EOFError
    kind, _, _, _, detail, payload = wire.REPLY.unpack(head)
    return kind, reader.read(detail).decode(), reader.read(payload)


def _send(to: _socket.socket, frame: bytes) -> None:
    try:
        to.send(frame)
    except OSError:
        return  # It is gone; what it said before is still there to be read, and the end of it shows there too.
