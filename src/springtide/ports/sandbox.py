"""Where untrusted code runs. A box is isolated, limited and killed whole."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

import msgspec


class CommandEnd(StrEnum):
    """How a command ended. Only `sandbox_error` is the infrastructure's fault; the rest is the agent's doing."""

    OK = "ok"
    NONZERO = "nonzero"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    """Wall-clock limit of the command."""
    CPU_LIMIT = "cpu_limit"
    OOM = "oom"
    """The declared memory limit."""
    PIDS_LIMIT = "pids_limit"
    DISK_FULL = "disk_full"
    OUTPUT_LIMIT = "output_limit"
    SANDBOX_ERROR = "sandbox_error"


class SandboxLevel(StrEnum):
    """How strong the isolation is, strongest first. Recorded in every result."""

    NAMESPACES = "namespaces"
    """Root: own mount, pid, network, ipc, uts namespaces, overlay root, cgroup limits, seccomp."""
    USER_NAMESPACES = "user_namespaces"
    """The same through an unprivileged user namespace; limits by rlimit where cgroups cannot be had."""
    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    """Landlock and rlimits only: no pid or mount isolation. Unsafe unless opted in by name."""
    NONE = "none"
    """A plain subprocess. Unsafe unless opted in by name."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Per box, except `wall_seconds` and `output_bytes`, which hold per command."""

    wall_seconds: float = 5.0
    cpu_seconds: float = 5.0
    memory_bytes: int = 256 << 20
    pids: int = 32
    disk_bytes: int = 64 << 20
    output_bytes: int = 64 << 10


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """`output` is stdout and stderr interleaved as written, cut at the output limit."""

    end: CommandEnd
    returncode: int
    output: bytes
    seconds: float
    level: SandboxLevel
    detail: str = ""


class Box(Protocol):
    """One isolated machine. State in the file system survives between commands; processes do not."""

    async def run(self, command: str, *, stdin: bytes = b"", wall_seconds: float | None = None) -> CommandResult:
        """Run `command` with `/bin/sh -c` in the box's working directory; every process it left is killed."""
        ...

    async def write(self, files: Mapping[str, bytes]) -> None:
        """Create or replace files; paths are relative to the working directory and may not leave it."""
        ...

    async def read(self, path: str, *, limit: int = 1 << 20) -> bytes | None:
        """A regular file's bytes (links are not followed), None if there is none."""
        ...

    async def close(self) -> None:
        """Kill everything, free everything. Idempotent."""
        ...


class Sandbox(Protocol):
    level: SandboxLevel

    async def start(self) -> None:
        """Bring up what boxes share. UnsafeSandboxError when only a level is left that was not opted in."""
        ...

    async def open(self, *, files: Mapping[str, bytes], limits: Limits) -> Box:
        """A fresh box whose working directory holds `files`."""
        ...

    async def close(self) -> None: ...
