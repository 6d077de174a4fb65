"""What a command did is what its result says."""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from sandbox.host import LIMITS
from springtide.ports.sandbox import Box, CommandEnd
from springtide.sandbox.linux import LinuxSandbox
from springtide.sandbox.wire import ENDS

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def test_every_end_has_its_number_in_a_reply() -> None:
    assert list(CommandEnd) == list(ENDS)


@pytest.mark.parametrize(
    ("command", "end", "code"),
    [
        ("true", CommandEnd.OK, 0),
        ("exit 3", CommandEnd.NONZERO, 3),
        ("no-such-program", CommandEnd.NONZERO, 127),
        ("kill -TERM $$", CommandEnd.SIGNAL, -15),
        ("kill -SEGV $$", CommandEnd.SIGNAL, -11),
        ("sh -c 'kill -KILL $$'; exit $?", CommandEnd.NONZERO, 137),
        ("echo 'a\0b'", CommandEnd.NONZERO, 126),
        (": " + "x" * 200_000, CommandEnd.NONZERO, 126),
        ("trap 'exit 0' TERM; (sleep 60; echo never) & sleep 60", CommandEnd.TIMEOUT, -9),
    ],
)
def test_end_and_exit_code(box: Box, run: Run, command: str, end: CommandEnd, code: int) -> None:
    result = run(box.run(command, wall_seconds=0.3 if end is CommandEnd.TIMEOUT else None))
    assert (result.end, result.returncode) == (end, code), result.output


def test_output_is_interleaved_as_written(box: Box, run: Run) -> None:
    command = "i=0; while [ $i -lt 50 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"
    expected = "".join(f"out {i}\nerr {i}\n" for i in range(50)).encode()
    assert run(box.run(command)).output == expected


def test_output_is_cut_exactly_at_its_limit(box: Box, run: Run) -> None:
    fits = run(box.run("head -c 32768 /dev/zero"))
    assert (fits.end, len(fits.output)) == (CommandEnd.OK, 32768)
    over = run(box.run("head -c 32769 /dev/zero"))
    assert (over.end, len(over.output)) == (CommandEnd.OUTPUT_LIMIT, 32768)


def test_stdin_reaches_the_command_and_is_empty_without(box: Box, run: Run) -> None:
    data = bytes(range(256)) * 1000
    assert run(box.run("cat | wc -c; cat | wc -c", stdin=data)).output.split() == [b"256000", b"0"]
    assert run(box.run("cat | wc -c")).output.strip() == b"0"
    assert run(box.run("head -c 3", stdin=b"abcdef" * 100_000)).output == b"abc"
    assert run(box.run("echo unread; sleep 0.01", stdin=b"x" * 1_000_000)).output == b"unread\n"


def test_orphans_that_have_ended_do_not_count_as_processes(box: Box, run: Run) -> None:
    gone = "while [ -e /proc/$(cat pid) ]; do sleep 0.002; done"
    result = run(box.run(f"i=0; while [ $i -lt 60 ]; do (true & echo $! > pid); {gone}; i=$((i+1)); done; echo done"))
    assert (result.end, result.output) == (CommandEnd.OK, b"done\n")


def test_a_limit_survived_does_not_name_the_end(box: Box, run: Run) -> None:
    result = run(box.run("cat /dev/zero > big; rm big; true"))
    assert result.end is CommandEnd.OK


def test_the_box_goes_on_after_every_limit(box: Box, run: Run) -> None:
    for command in (
        "cat /dev/zero",
        "cat /dev/zero > big",
        "head -c 200m /dev/zero | tail -c 200m",
        "b() { b | b; }; b",
    ):
        assert run(box.run(command, wall_seconds=2.0)).end is not CommandEnd.OK
    run(box.run("rm big"))
    assert run(box.run("echo still here")).output == b"still here\n"


def test_a_box_filled_to_the_brim_stays_the_agents_doing(sandbox: LinuxSandbox, run: Run) -> None:
    if "memory" not in sandbox.limits_by:
        pytest.skip("no control group limits memory on this host")

    async def fill() -> list[CommandEnd]:
        box = await sandbox.open(files={"fill.c": FILL}, limits=LIMITS)
        if (await box.run("cc -o fill fill.c")).end is not CommandEnd.OK:
            pytest.skip("there is no C compiler in the box")
        ends = [(await box.run(f"./fill {size}")).end for size in (8000, 100, 8000, 100)]
        ends += [(await box.run(command)).end for command in ("true", "echo", "ls | wc") * 2]
        await box.close()
        return ends

    ends = run(fill())
    assert ends[0] is CommandEnd.OOM
    assert set(ends) <= {CommandEnd.OOM, CommandEnd.OK}


FILL = rb"""
#include <stdlib.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/shm.h>
struct { long type; char text[8192]; } message = {1};
int main(int argc, char **argv) {
    for (;;) {
        int segment = shmget(IPC_PRIVATE, 65536, 0600);
        if (segment < 0) break;
        memset(shmat(segment, 0, 0), 1, 65536);
    }
    for (;;) {
        int queue = msgget(IPC_PRIVATE, 0600);
        if (queue < 0) return 1;
        while (msgsnd(queue, &message, atoi(argv[1]), IPC_NOWAIT) == 0) {}
    }
}
"""
"""Memory that stays when its process is killed: segments, then queues of ever smaller messages."""


def test_cpu_time_is_of_the_box_and_not_of_a_command(sandbox: LinuxSandbox, run: Run) -> None:
    async def spend() -> list[CommandEnd]:
        box = await sandbox.open(files={}, limits=msgspec.structs.replace(LIMITS, cpu_seconds=0.4))
        spin = "timeout 0.1 sh -c 'while :; do :; done'; :"
        ends = []
        while CommandEnd.CPU_LIMIT not in ends and len(ends) < 300:
            ends.append((await box.run(spin)).end)
        ends.append((await box.run("true")).end)
        await box.close()
        return ends

    ends = run(spend())
    assert len(ends) > 2
    assert ends[-2:] == [CommandEnd.CPU_LIMIT] * 2
    assert set(ends[:-2]) == {CommandEnd.OK}


def test_the_world_of_a_command_is_fixed(sandbox: LinuxSandbox, run: Run) -> None:
    async def look() -> bytes:
        box = await sandbox.open(files={"f": b""}, limits=LIMITS)
        output = (await box.run("env | sort; pwd; id; hostname; umask; date +%Z; ls; echo $$; ulimit -a")).output
        await box.close()
        return output

    first = run(look())
    assert first == run(look())
    assert b"uid=61000(agent) gid=61000(agent) groups=61000(agent)\nbox\n0022\nUTC\nf\n2\n" in first
