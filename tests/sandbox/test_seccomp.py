"""The filter, decision by decision, run by an interpreter of its own; and the numbers, against the system's headers."""

import re
from pathlib import Path
from struct import iter_unpack

import pytest

from springtide.sandbox.warden.bpf import Assembler
from springtide.sandbox.warden.seccomp import (
    ABSENT,
    ALLOW,
    CHECKED,
    DENIED,
    EAFNOSUPPORT,
    ENOSYS,
    EPERM,
    KILL_PROCESS,
    SELF_ONLY,
    UNCOUNTED,
    build_filter,
)
from springtide.sandbox.warden.syscalls import AUDIT_ARCH, LAST_REVIEWED, TABLES

MACHINES = sorted(TABLES)
HIGH = 0xFFFF_FFFF_0000_0000
"""The half of an argument that the kernel ignores for an int."""


def decide(program: bytes, *, arch: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    words = {0: number, 4: arch}
    for index, argument in enumerate(arguments):
        words[16 + 8 * index], words[20 + 8 * index] = argument & 0xFFFFFFFF, argument >> 32
    lines = list(iter_unpack("<HBBI", program))
    position, accumulator = 0, 0
    while True:
        code, then, otherwise, value = lines[position]
        position += 1
        match code:
            case 0x20:
                accumulator = words.get(value, 0)
            case 0x06:
                return value
            case 0x15:
                position += then if accumulator == value else otherwise
            case 0x35:
                position += then if accumulator >= value else otherwise
            case 0x45:
                position += then if accumulator & value else otherwise
            case _:
                raise AssertionError(code)


@pytest.mark.parametrize("machine", MACHINES)
def test_each_call_has_the_fate_of_its_name(machine: str) -> None:
    program, arch = build_filter(machine), AUDIT_ARCH[machine]
    names = {number: name for name, number in TABLES[machine].items()}
    for number in range(LAST_REVIEWED + 1):
        name = names.get(number, "")
        if name in CHECKED:
            continue
        expected = EPERM if name in DENIED else ENOSYS if name in ABSENT else ALLOW
        assert decide(program, arch=arch, number=number) == expected, name or number


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_of_no_process_is_there_only_where_it_is_counted(machine: str) -> None:
    counted, uncounted = (build_filter(machine, memory_is_counted=counted) for counted in (True, False))
    arch, numbers = AUDIT_ARCH[machine], TABLES[machine]
    for name in UNCOUNTED - {"mmap"}:
        assert decide(counted, arch=arch, number=numbers[name]) == ALLOW
        assert decide(uncounted, arch=arch, number=numbers[name]) == ENOSYS
    for flags, expected in ((0x22, ALLOW), (0x01, ALLOW), (0x02, ALLOW), (0x21, EPERM), (0x23, EPERM), (0x4021, EPERM)):
        arguments = (0, 4096, 3, flags)
        assert decide(counted, arch=arch, number=numbers["mmap"], arguments=arguments) == ALLOW
        assert decide(uncounted, arch=arch, number=numbers["mmap"], arguments=arguments) == expected
    assert decide(uncounted, arch=arch, number=numbers["ptrace"]) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_what_the_filter_never_heard_of_does_not_exist(machine: str) -> None:
    program, arch = build_filter(machine), AUDIT_ARCH[machine]
    for number in (LAST_REVIEWED + 1, 500, 0x40000000, 0x40000000 | 59, 0xFFFFFFFF):
        assert decide(program, arch=arch, number=number) == ENOSYS
    assert decide(program, arch=0x40000003, number=1) == KILL_PROCESS


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (0x01200011,), ALLOW),
        ("clone", (0x3D0F00,), ALLOW),
        *(("clone", (1 << bit | 17,), EPERM) for bit in (17, 25, 26, 27, 28, 29, 30)),
        ("socket", (1, 1), ALLOW),
        ("socket", (HIGH | 2, 1), EAFNOSUPPORT),
        ("socket", (16, 3), EAFNOSUPPORT),
        ("socketpair", (1, 1), ALLOW),
        ("socketpair", (30, 1), EAFNOSUPPORT),
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), EPERM),
        ("ioctl", (0, HIGH | 0x5412), EPERM),
        ("ioctl", (0, 0x541C), EPERM),
        ("personality", (0xFFFFFFFF,), ALLOW),
        ("personality", (0,), ALLOW),
        ("personality", (0x0040000,), ALLOW),
        ("personality", (0x0400000,), EPERM),
        ("setpriority", (0, 0, 5), ALLOW),
        ("setpriority", (0, 1, 5), EPERM),
        ("setpriority", (2, 0, 5), EPERM),
        *((name, (0,), ALLOW) for name in sorted(SELF_ONLY)),
        *((name, (1,), EPERM) for name in sorted(SELF_ONLY)),
    ],
)
def test_arguments_decide(machine: str, name: str, arguments: tuple[int, ...], expected: int) -> None:
    number = TABLES[machine][name]
    assert decide(build_filter(machine), arch=AUDIT_ARCH[machine], number=number, arguments=arguments) == expected


@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "/usr/include/asm-generic/unistd.h")],
)
def test_numbers_are_those_of_the_system(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"no {header} on this host")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text())
    numbers = {name: int(number) for name, number in reversed(defined)}
    for name, number in TABLES[machine].items():
        if name in numbers:
            assert numbers[name] == number, name
    assert len(TABLES[machine].keys() & numbers.keys()) > 60


@pytest.mark.parametrize("machine", MACHINES)
def test_each_named_call_is_in_the_table_or_does_not_exist_there(machine: str) -> None:
    only_x86 = {"_sysctl", "create_module", "get_kernel_syms", "query_module", "modify_ldt", "uselib", "ustat", "sysfs"}
    only_x86 |= {"iopl", "ioperm"}
    missing = (DENIED | CHECKED | ABSENT | UNCOUNTED) - TABLES[machine].keys()
    assert missing == (set() if machine == "x86_64" else only_x86)


def test_a_jump_too_far_is_refused_when_assembling() -> None:
    code = Assembler()
    code.if_equal(1, then="far")
    for _ in range(256):
        code.give(ALLOW)
    code.label("far")
    code.give(ALLOW)
    with pytest.raises(AssertionError, match="256 instructions"):
        code.assemble()
