"""A stand-in for a trainer, to be killed: opens boxes, starts stubborn processes in them, and waits."""

import asyncio
import os
import signal
import sys

from springtide.ports.sandbox import Limits, SandboxLevel
from springtide.sandbox import SandboxConfig
from springtide.sandbox.linux import LinuxSandbox

STUBBORN = "trap '' TERM HUP INT; (setsid nohup sleep 300 >/dev/null 2>&1 &); while :; do sleep 300; done"
PROCESSES = 4
"""Sleeping ones, when all is started."""


async def main(level: str, forks: bool) -> None:
    sandbox = LinuxSandbox(SandboxConfig(), levels=[SandboxLevel(level)])
    await sandbox.start()
    limits = Limits(wall_seconds=300.0, cpu_seconds=300.0)
    boxes = [await sandbox.open(files={"f": b"x"}, limits=limits) for _ in range(3)]
    if forks and os.fork() == 0:
        signal.pause()  # Holds a copy of every socket, as a forked data worker would.
    await asyncio.gather(*(box.run(STUBBORN) for box in boxes[:2]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], len(sys.argv) > 2))
