"""One command in a box: spawned, watched, ended with everything it started, and judged.

The shell's end is the command's end. Output goes through one pipe, so it is interleaved as written; the pipe is read to
its end only after every writer is dead, so nothing can hold it open.
"""

from __future__ import annotations

import os
import select
from errno import E2BIG, ENOMEM
from time import monotonic

from springtide.sandbox.warden.cgroups import Counters
from springtide.sandbox.warden.kernel import SIGCHLD, SIGINT, SIGPIPE, SIGXCPU, SIGXFSZ, watch_children
from springtide.sandbox.warden.limits import Limits
from springtide.sandbox.warden.processes import LiveClock, Reaper
from springtide.sandbox.warden.shortage import Shortage

CpuClock = Counters | LiveClock

ENVIRONMENT = {
    "HOME": "/work",
    "LANG": "C.UTF-8",
    "LOGNAME": "agent",
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "PWD": "/work",
    "PYTHONHASHSEED": "0",
    "SHELL": "/bin/sh",
    "TERM": "dumb",
    "TMPDIR": "/tmp",
    "TZ": "UTC",
    "USER": "agent",
}
_DEFAULT_SIGNALS = (SIGINT, SIGPIPE, SIGCHLD, SIGXFSZ)
_CHUNK = 1 << 16
_CPU_CHECK_SECONDS = 0.02
"""Least time between two looks at the CPU counter."""
_FULL_BYTES = 4096
_CORES = os.cpu_count() or 1


class StoppedError(Exception):
    """The trainer closed the box, or is gone, while a command ran."""


class Result:
    __slots__ = ("code", "detail", "end", "output", "seconds")

    def __init__(self, end: str, code: int, output: bytes, seconds: float, detail: str = "") -> None:
        self.end, self.code, self.output, self.seconds, self.detail = end, code, output, seconds, detail


class Shell:
    """Runs the commands of one box."""

    def __init__(
        self,
        *,
        limits: Limits,
        counters: Counters,
        reaper: Reaper,
        clock: CpuClock,
        oom_score: int,
        control: int,
        folders: tuple[str, ...],
        shell: str,
        environment: dict[str, str],
    ) -> None:
        self._limits, self._counters, self._reaper, self._clock = limits, counters, reaper, clock
        self._oom_score, self._control, self._folders = oom_score, control, folders
        self._shell, self._environment = shell, environment
        self._own_score = os.pread(oom_score, 16, 0).strip() if oom_score >= 0 else b""
        self._null = os.open("/dev/null", os.O_RDONLY)
        self._children = watch_children()
        self._cpu_start = 0.0
        self._cpu_start = self._cpu()
        self._lanes = min(limits.pids, _CORES)

    def run(self, command: bytes, stdin: bytes, wall_seconds: float) -> Result:
        """StoppedError when something arrives from the trainer meanwhile: it only ever asks to close."""
        started = monotonic()
        if self._cpu() >= self._limits.cpu_seconds:
            return Result("cpu_limit", -SIGXCPU, b"", 0.0, "the CPU time of this box was used up before the command")
        self._counters.memory.begin()
        refused = self._counters.refused_forks()
        try:
            pid, output, source = self._spawn(command, stdin)
        except (OSError, ValueError) as error:
            return self._not_spawned(error, self._counters.memory.since_begin(), monotonic() - started)
        forced, status = self._watch(pid, output, source, started + wall_seconds)
        self._reaper.end_all()
        source.close()
        if not output.drain() and not forced:
            forced = "output_limit"
        os.close(output.reader)
        short = self._counters.memory.since_begin()
        end, code, detail = self._judge(forced, status, short, self._counters.refused_forks() - refused)
        return Result(end, code, output.text(), monotonic() - started, detail)

    def _spawn(self, command: bytes, stdin: bytes) -> tuple[int, Output, Input]:
        """Start the shell: its pid, and our ends of its output and input."""
        theirs, ours = [], []
        self._set_oom_score(b"1000")
        try:
            reader, writer = os.pipe2(os.O_CLOEXEC)
            theirs.append(writer)
            ours.append(reader)
            source = self._null
            if stdin:
                source, feeder = os.pipe2(os.O_CLOEXEC)
                theirs.append(source)
                ours.append(feeder)
            pid = os.posix_spawn(
                self._shell,
                ("sh", "-c", command),
                self._environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, *pair) for pair in ((source, 0), (writer, 1), (writer, 2))],
                setpgroup=0,
                setsigmask=(),
                setsigdef=_DEFAULT_SIGNALS,
            )
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            self._set_oom_score(self._own_score)
            for descriptor in theirs:
                os.close(descriptor)
        return pid, Output(reader, self._limits.output_bytes), Input(feeder if stdin else -1, stdin)

    def _not_spawned(self, error: OSError | ValueError, short: Shortage, seconds: float) -> Result:
        """A command that no shell can be given, or no memory of the box, is the agent's failure; all else is ours."""
        if isinstance(error, ValueError):
            return Result("nonzero", 126, b"sh: the command holds a NUL byte\n", seconds)
        if error.errno == E2BIG:
            return Result("nonzero", 126, b"sh: the command is too long\n", seconds)
        if error.errno == ENOMEM and short.met:
            return Result("oom", -9, b"", seconds, "the box had no memory left to start a shell")
        return Result("sandbox_error", -1, b"", seconds, f"the shell could not be started: {error}")

    def _set_oom_score(self, score: bytes) -> None:
        """What is spawned inherits it: out of memory, the kernel takes a command before the box's first process."""
        if self._oom_score >= 0:
            os.pwrite(self._oom_score, score, 0)

    def _watch(self, pid: int, output: Output, source: Input, deadline: float) -> tuple[str, int]:
        """Wait for the command's shell to end: "" and its wait status, or the limit that was exceeded first."""
        poll = select.poll()
        for descriptor in (self._children, output.reader, self._control):
            poll.register(descriptor, select.POLLIN)
        if source.writer >= 0:
            poll.register(source.writer, select.POLLOUT)
        next_check = monotonic() + self._cpu_margin()
        while True:
            now = monotonic()
            if now >= deadline:
                return "timeout", 0
            if now >= next_check:
                margin = self._cpu_margin()
                if margin <= 0:
                    return "cpu_limit", 0
                next_check = now + margin
            ready = {found for found, _ in poll.poll(max(0.0, min(deadline, next_check) - now) * 1000 + 1)}
            if source.writer in ready:
                source.feed(poll)
            if output.reader in ready:
                if not output.read():
                    return "output_limit", 0
                if output.ended:
                    poll.unregister(output.reader)
            if self._children in ready:
                status = self._collect(pid)
                if status is not None:
                    return "", status
            if self._control in ready:
                raise StoppedError

    def _collect(self, pid: int) -> int | None:
        """Take in what has ended: the wait status of `pid`, if it has, and orphans, which would count as running."""
        os.read(self._children, 1 << 12)
        status = None
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == pid:
                    status = ended[1]
        except ChildProcessError:
            pass  # None are left.
        return status

    def _cpu(self) -> float:
        return self._clock.cpu_seconds() - self._cpu_start

    def _cpu_margin(self) -> float:
        """Seconds that the box can run before its CPU time can be used up; not above 0 when it is."""
        left = self._limits.cpu_seconds - self._cpu()
        return max(left / self._lanes, _CPU_CHECK_SECONDS) if left > 0 else 0.0

    def _judge(self, forced: str, status: int, short: Shortage, refusals: int) -> tuple[str, int, str]:
        """End, exit code (negative for a signal) and detail. A limit names the end only when the command failed.

        What lost a process to a lack of memory outside the box would have gone otherwise, however it ended.
        """
        if short.foreign:
            return "sandbox_error", -9, f"{short.kills} killed because the host, not the box, was out of memory"
        notes = [f"{short.kills} killed at the memory limit"] * short.own
        detail = "; ".join(notes + ["forks refused at the limit"] * (refusals > 0))
        if forced:
            return forced, -9, detail
        code = os.waitstatus_to_exitcode(status)
        signal = -code if code < 0 else code - 128
        if code == 0:
            end = "ok"
        elif short.own:
            end = "oom"
        elif refusals:
            end = "pids_limit"
        elif self._disk_is_full() or signal == SIGXFSZ:
            end = "disk_full"
        elif signal == SIGXCPU or self._cpu() >= self._limits.cpu_seconds:
            end = "cpu_limit"
        else:
            end = "signal" if code < 0 else "nonzero"
        return end, code, detail

    def _disk_is_full(self) -> bool:
        disks = map(os.statvfs, self._folders)
        return any(disk.f_bavail * disk.f_frsize < _FULL_BYTES or disk.f_ffree == 0 < disk.f_files for disk in disks)


class Input:
    """What the command may read, written as it makes room."""

    def __init__(self, writer: int, content: bytes) -> None:
        self.writer = writer
        self._left = memoryview(content)
        if writer >= 0:
            os.set_blocking(writer, False)

    def feed(self, poll: select.poll) -> None:
        try:
            self._left = self._left[os.write(self.writer, self._left[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._left = self._left[:0]  # Nobody reads any more.
        if not self._left:
            poll.unregister(self.writer)
            self.close()

    def close(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1


class Output:
    """What the command wrote, up to the limit."""

    def __init__(self, reader: int, limit: int) -> None:
        os.set_blocking(reader, False)
        self.reader = reader
        self.ended = False
        self._left = limit
        self._chunks: list[bytes] = []

    def read(self) -> bool:
        """Take what is there. False when it is more than the limit allows."""
        try:
            chunk = os.read(self.reader, _CHUNK)
        except BlockingIOError:
            return True
        self.ended = not chunk
        self._chunks.append(chunk[: self._left])
        fits = len(chunk) <= self._left
        self._left -= min(len(chunk), self._left)
        return fits

    def drain(self) -> bool:
        """Read to the end, with all writers gone. False when it is more than the limit allows."""
        while not self.ended:
            if not self.read():
                return False
        return True

    def text(self) -> bytes:
        return b"".join(self._chunks)
