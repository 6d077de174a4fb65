"""The sandbox: does it hold, does anything stay behind, and what does it cost?

`python benchmarks/sandbox.py` makes every attempt of the escape battery, kills a trainer at work and counts what is
left ten seconds later, and measures the opening of a box and a trivial command against a fork and exec of /bin/true,
interleaved in one run. Writes `benchmarks/results/sandbox.json`.
"""

import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import report
from springtide.ports.sandbox import Limits, SandboxLevel
from springtide.sandbox import SandboxConfig
from springtide.sandbox.battery import attempt_once, attempts, has_python, planted
from springtide.sandbox.linux import LinuxSandbox
from springtide.sandbox.warden import owner

STUBBORN = "trap '' TERM HUP INT; (setsid nohup sleep 300 >/dev/null 2>&1 &); while :; do sleep 300; done"
VICTIM_BOXES = 4
WARM_UP = 5
LONG = Limits(wall_seconds=300.0, cpu_seconds=300.0)
TICK = os.sysconf("SC_CLK_TCK")


async def hold(sandbox: LinuxSandbox) -> dict[str, Any]:
    """The battery: how many attempts were made and contained, and which were not."""
    python = await has_python(sandbox)
    counted = "pids" in sandbox.limits_by and sandbox.level is not SandboxLevel.BUBBLEWRAP
    verdicts = []
    with planted() as host:
        for attempt in attempts(python=python):
            verdicts.append(await attempt_once(sandbox, attempt, host, counted=counted))
    return {
        "attempts": len(verdicts),
        "contained": sum(verdict.contained for verdict in verdicts),
        "raw_calls": python,
        "ends": {verdict.name: str(verdict.end) for verdict in verdicts},
        "failures": [{"name": v.name, "detail": v.detail} for v in verdicts if not v.contained],
    }


def kill_trainer(level: str) -> list[str]:
    """Kill -9 a trainer with busy boxes. What is left ten seconds later: processes, control groups, folders."""
    victim = subprocess.Popen([sys.executable, __file__, "victim", level], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while sum(_name(pid) == "sleep" for pid in _family(victim.pid)) < 2 * VICTIM_BOXES:
        if victim.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the trainer to be killed did not start")
        time.sleep(0.02)
    family = _family(victim.pid)
    victim.kill()
    victim.wait()
    deadline = time.monotonic() + 10
    while (left := _left(family)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


async def be_victim(level: str) -> None:
    sandbox = LinuxSandbox(SandboxConfig(), levels=[SandboxLevel(level)])
    await sandbox.start()
    boxes = [await sandbox.open(files={}, limits=LONG) for _ in range(VICTIM_BOXES)]
    await asyncio.gather(*(box.run(STUBBORN) for box in boxes))


def _left(family: set[int]) -> list[str]:
    folders = ["/tmp", *(folder for folder, _, _ in os.walk("/sys/fs/cgroup"))]
    return [path for folder in folders for path in owner.leftovers(folder)] + [
        f"process {pid} {_name(pid)}" for pid in family if _name(pid)
    ]


def _family(pid: int) -> set[int]:
    """All descendants."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    family = {pid}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return family - {pid}


def _name(pid: int) -> str:
    """Empty for a process that has ended."""
    try:
        name, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return ""
    return "" if fields.split()[0] in "ZX" else name.partition("(")[2]


def _cpu_seconds(pids: set[int]) -> float:
    """CPU time of processes and of the children that they collected."""
    ticks = 0
    for pid in pids:
        try:
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return ticks / TICK


async def cost(sandbox: LinuxSandbox, rounds: int) -> dict[str, Any]:
    """Latencies, one round after the other: fork+exec, the command in a plain shell, open, three times the command in
    the box, close."""
    samples: dict[str, list[float]] = {
        "fork_exec": [],
        "plain_shell": [],
        "launch": [],
        "first_command": [],
        "command": [],
        "close": [],
    }
    for number in range(rounds + WARM_UP):
        seconds = await _round(sandbox)
        if number >= WARM_UP:
            for name, values in seconds.items():
                samples[name] += values
    latency = {name: _summary(values) for name, values in samples.items()}
    base = latency["fork_exec"]["median_ms"]
    return {
        "rounds": rounds,
        "latency": latency,
        "launch_ratio": round(latency["launch"]["median_ms"] / base, 3),
        "command_ratio": round(latency["command"]["median_ms"] / base, 3),
        "samples_ms": {name: [round(value * 1e3, 4) for value in values] for name, values in samples.items()},
    }


def fork_and_exec() -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def plain_shell() -> None:
    """As `box.run("cat f")`, outside of a box: a shell that starts `cat`."""
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "cat /dev/null"], {"PATH": os.defpath}), 0)


async def _round(sandbox: LinuxSandbox) -> dict[str, list[float]]:
    """`command` holds all three, the first one included."""
    clock = time.perf_counter
    marks = [clock()]
    fork_and_exec()
    marks.append(clock())
    plain_shell()
    marks.append(clock())
    box = await sandbox.open(files={"f": b"springtide"}, limits=Limits())
    marks.append(clock())
    for _ in range(3):
        result = await box.run("cat f")
        marks.append(clock())
        assert result.output == b"springtide"
    await box.close()
    marks.append(clock())
    fork_exec, shell, launch, *commands, close = (later - earlier for earlier, later in itertools.pairwise(marks))
    return {
        "fork_exec": [fork_exec],
        "plain_shell": [shell],
        "launch": [launch],
        "first_command": commands[:1],
        "command": commands,
        "close": [close],
    }


async def cpu_cost(sandbox: LinuxSandbox, rounds: int) -> dict[str, float]:
    """CPU milliseconds of everything involved: of a box opened and closed, of a command, of fork+exec."""

    async def boxes(commands: int) -> float:
        before = _cpu_seconds(_family(os.getpid())) + time.process_time()
        for _ in range(rounds):
            box = await sandbox.open(files={"f": b"springtide"}, limits=Limits())
            for _ in range(commands):
                await box.run("cat f")
            await box.close()
        return (_cpu_seconds(_family(os.getpid())) + time.process_time() - before) * 1e3 / rounds

    bare = await boxes(0)
    with_commands = await boxes(4)
    before = os.times()
    for _ in range(rounds):
        fork_and_exec()
    after = os.times()
    spawn = sum(after[:4]) - sum(before[:4])
    return {
        "box_ms": round(bare, 3),
        "command_ms": round((with_commands - bare) / 4, 3),
        "fork_exec_ms": round(spawn * 1e3 / rounds, 3),
    }


def _summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(value * 1e3 for value in values)
    quarters = statistics.quantiles(ordered, n=4)
    return {
        "median_ms": round(statistics.median(ordered), 4),
        "p95_ms": round(ordered[int(0.95 * (len(ordered) - 1))], 4),
        "least_ms": round(ordered[0], 4),
        "quartile_spread_ms": round(quarters[2] - quarters[0], 4),
    }


async def measure(quick: bool) -> dict[str, Any]:
    sandbox = LinuxSandbox(SandboxConfig())
    started = time.perf_counter()
    await sandbox.start()
    start_seconds = time.perf_counter() - started
    held = await hold(sandbox)
    costs = await cost(sandbox, 60 if quick else 400)
    cpu = await cpu_cost(sandbox, 50 if quick else 300)
    family = _family(os.getpid())
    await sandbox.close()
    leaks = _left(family) + kill_trainer(sandbox.level)
    return {
        "level": str(sandbox.level),
        "limits_by": sandbox.limits_by,
        "machine": report.machine(),
        "start_seconds": round(start_seconds, 4),
        **held,
        "leaks": leaks,
        "cpu": cpu,
        **costs,
    }


def show(result: dict[str, Any]) -> None:
    print(f"level {result['level']}, limits by {result['limits_by']}, load {result['machine']['load'][0]:.1f}")
    print(f"attempts {result['attempts']}, contained {result['contained']}, left behind {len(result['leaks'])}")
    for failure in result["failures"]:
        print(f"  not contained: {failure['name']}: {failure['detail']}")
    for leak in result["leaks"]:
        print(f"  left behind: {leak}")
    base = result["latency"]["fork_exec"]["median_ms"]
    columns = ("median_ms", "p95_ms", "least_ms", "quartile_spread_ms")
    rows = [
        [name, *(f"{row[column]:.2f}" for column in columns), f"{row['median_ms'] / base:.2f}"]
        for name, row in result["latency"].items()
    ]
    print(report.table(("", "median ms", "p95", "least", "quartiles apart", "ratio of medians"), rows))
    cpu = result["cpu"]
    print(
        f"CPU: a box opened and closed {cpu['box_ms']:.2f} ms, a command {cpu['command_ms']:.2f} ms, "
        f"fork+exec {cpu['fork_exec_ms']:.2f} ms"
    )


def main() -> None:
    if sys.argv[1:2] == ["victim"]:
        asyncio.run(be_victim(sys.argv[2]))
        return
    options = report.parser(__doc__).parse_args()
    result = asyncio.run(measure(options.quick))
    show(result)
    figures = {name: result[name] for name in ("attempts", "contained", "launch_ratio", "command_ratio")}
    report.finish("sandbox", figures={**figures, "leaks": len(result["leaks"])}, record=result, options=options)


if __name__ == "__main__":
    main()
