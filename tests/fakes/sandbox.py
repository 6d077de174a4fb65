"""A sandbox without isolation: /bin/sh in a temporary folder. For commands that the tests themselves wrote."""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from springtide.ports.sandbox import Box, CommandEnd, CommandResult, Limits, SandboxLevel


class LocalBox:
    def __init__(self, files: Mapping[str, bytes], limits: Limits) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="springtide-test-"))
        self._limits = limits
        self.closes = 0
        for path, data in files.items():
            self._put(path, data)

    def _put(self, path: str, data: bytes) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    async def run(self, command: str, *, stdin: bytes = b"", wall_seconds: float | None = None) -> CommandResult:
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(wall_seconds or self._limits.wall_seconds):
                output, _ = await process.communicate(stdin)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            return self._result(CommandEnd.TIMEOUT, -9, b"", started)
        end = CommandEnd.OK if process.returncode == 0 else CommandEnd.NONZERO
        if len(output) > self._limits.output_bytes:
            end, output = CommandEnd.OUTPUT_LIMIT, output[: self._limits.output_bytes]
        assert process.returncode is not None
        return self._result(end, process.returncode, output, started)

    def _result(self, end: CommandEnd, returncode: int, output: bytes, started: float) -> CommandResult:
        seconds = time.monotonic() - started
        return CommandResult(end=end, returncode=returncode, output=output, seconds=seconds, level=SandboxLevel.NONE)

    async def write(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self._put(path, data)

    async def read(self, path: str, *, limit: int = 1 << 20) -> bytes | None:
        target = self.folder / path
        if target.is_symlink() or not target.is_file():
            return None
        return target.read_bytes()[:limit]

    async def close(self) -> None:
        self.closes += 1
        shutil.rmtree(self.folder, ignore_errors=True)


class ScriptedBox(LocalBox):
    """Gives each command the end that the test wants, without running it."""

    def __init__(self, files: Mapping[str, bytes], limits: Limits, end: CommandEnd) -> None:
        super().__init__(files, limits)
        self._end = end

    async def run(self, command: str, *, stdin: bytes = b"", wall_seconds: float | None = None) -> CommandResult:
        return self._result(self._end, 1, b"partial", time.monotonic())


class LocalSandbox:
    """`end` makes every command end that way."""

    level = SandboxLevel.NONE

    def __init__(self, *, end: CommandEnd | None = None) -> None:
        self._end = end
        self.boxes: list[LocalBox] = []
        self.started = False

    async def start(self) -> None:
        self.started = True

    async def open(self, *, files: Mapping[str, bytes], limits: Limits) -> Box:
        box = LocalBox(files, limits) if self._end is None else ScriptedBox(files, limits, self._end)
        self.boxes.append(box)
        return box

    async def close(self) -> None:
        self.started = False
