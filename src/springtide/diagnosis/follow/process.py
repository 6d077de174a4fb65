"""The process that trains a run, and the one signal that a watch may send it.

A number alone names nobody for long: the process of one of our runs has the run's lock open, and of any other the time
at which it was started must still be the same when it is signalled.
"""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from springtide.core.errors import UsageError
from springtide.telemetry.run_folder import RunFolder

PROCESSES = Path("/proc")


@dataclass(frozen=True)
class RunProcess:
    """`started`: in the kernel's clock ticks, which no two processes with one number share."""

    pid: int
    started: str

    def stop(self) -> bool:
        """Ask it to end. Whether it was still there."""
        if _started(self.pid) != self.started:
            return False
        try:
            os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            return False
        return True


def process_of(path: Path, pid: int | None = None) -> RunProcess:
    """That of a run of ours, by its folder; of any other run the one that the user names.

    UsageError if there is none, or if it is not sure which it is.
    """
    if pid is not None:
        return _named(pid)
    if not (path / "run.json").is_file():
        raise UsageError(
            f"--stop-run needs to know which process to stop: {path} is not the folder of a run of ours, so add "
            "--pid PID."
        )
    folder = RunFolder.open(path)
    owner = _owner(folder.path / "lock") if folder.locked() else None
    if owner is None:
        raise UsageError(f"--stop-run: no process on this machine trains run {folder.id}; start it first.")
    return _named(owner)


def _named(pid: int) -> RunProcess:
    started = _started(pid)
    if started is None or pid <= 1 or pid == os.getpid():
        raise UsageError(f"--pid {pid}: there is no such process that could be stopped.")
    return RunProcess(pid, started)


def _owner(lock: Path) -> int | None:
    """Of the process whose number is in the lock, if it really has it open."""
    try:
        pid = int(lock.read_text())
        wanted = lock.stat()
        files = list((PROCESSES / str(pid) / "fd").iterdir())
    except (OSError, ValueError):
        return None
    for file in files:
        with suppress(OSError):
            held = file.stat()
            if (held.st_dev, held.st_ino) == (wanted.st_dev, wanted.st_ino):
                return pid
    return None


def _started(pid: int) -> str | None:
    try:
        text = (PROCESSES / str(pid) / "stat").read_text()
    except OSError:
        return None
    after_name = text.rpartition(")")[2].split()
    return None if after_name[:1] == ["Z"] or len(after_name) < 20 else after_name[19]
