"""Where control groups are made, what is written into them, and which are cleared away, on a pretended file system."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from springtide.sandbox.warden import cgroups
from springtide.sandbox.warden.owner import is_leftover, leftovers, own_name, start_time

Plant = Callable[..., cgroups.GroupTree]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    def plant(mounts: list[str], own: str = "/") -> cgroups.GroupTree:
        (tmp_path / "mounts").write_text("".join(f"{line}\n" for line in ["proc /proc proc rw 0 0", *mounts]))
        (tmp_path / "own").write_text(f"4:memory:/elsewhere\n0::{own}\n")
        return cgroups.plant(str(tmp_path / "mounts"), str(tmp_path / "own"))

    return plant


@pytest.fixture
def kernel_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every new folder the files that the kernel would."""
    make = os.mkdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        make(path, mode)
        for name in ("cgroup.procs", "cgroup.subtree_control", *V1, *V2, "pids.max", "pids.events"):
            Path(path, name).write_text("")

    monkeypatch.setattr("springtide.sandbox.warden.cgroups.os.mkdir", mkdir)


V1 = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control", "cpuacct.usage")
V2 = ("memory.max", "memory.swap.max", "memory.events", "cpu.stat")


def test_version_1_has_a_folder_per_hierarchy(tmp_path: Path, plant: Plant, kernel_files: None) -> None:
    for name in ("memory", "pids", "cpu,cpuacct"):
        (tmp_path / name).mkdir()
    tree = plant(
        [
            f"cgroup {tmp_path}/memory cgroup rw,relatime,memory 0 0",
            f"cgroup {tmp_path}/pids cgroup rw,pids 0 0",
            f"cgroup {tmp_path}/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0",
        ]
    )
    assert (tree.version, tree.controllers) == (1, ("memory", "pids", "cpuacct"))
    group = tree.create()
    group.attach()
    group.open()
    group.set_limits(1 << 20, 7)
    base = tmp_path / "memory" / own_name() / "1"
    assert (base / "cgroup.procs").read_text() == "0"
    assert (
        (base / "memory.limit_in_bytes").read_text() == (base / "memory.memsw.limit_in_bytes").read_text() == "1048576"
    )
    assert (tmp_path / "pids" / own_name() / "1" / "pids.max").read_text() == "7"


def test_a_group_that_can_be_made_in_part_only_is_not_left_behind(tmp_path: Path, plant: Plant) -> None:
    for name in ("memory", "pids"):
        (tmp_path / name).mkdir()
    tree = plant([f"cgroup {tmp_path}/{name} cgroup rw,{name} 0 0" for name in ("memory", "pids")])
    in_the_way = tmp_path / "pids" / own_name() / "1"
    in_the_way.mkdir()
    with pytest.raises(FileExistsError):
        tree.create()
    assert list((tmp_path / "memory" / own_name()).iterdir()) == []


def test_a_group_that_cannot_be_removed_costs_nothing(
    tmp_path: Path, plant: Plant, kernel_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead warden's group that may not be written to, as one of another user's in a delegated tree."""
    (tmp_path / "memory").mkdir()
    pid = own_name().split("-")[2]
    dead = tmp_path / "memory" / own_name().replace(f"-{pid}-", "-99999999-")
    dead.mkdir()
    (dead / "cgroup.kill").write_text("")

    def refuse(path: str, text: str) -> None:
        raise PermissionError(1, f"{text} to {path}")

    monkeypatch.setattr("springtide.sandbox.warden.cgroups._write", refuse)
    tree = plant([f"cgroup {tmp_path}/memory cgroup rw,memory 0 0"])
    assert tree.controllers == ("memory",)
    assert dead.exists()


def test_version_1_with_controllers_mounted_together(tmp_path: Path, plant: Plant) -> None:
    (tmp_path / "all").mkdir()
    tree = plant([f"cgroup {tmp_path}/all cgroup rw,memory,pids,cpuacct 0 0"])
    assert (tree.version, tree.controllers) == (1, ("memory", "pids", "cpuacct"))


def test_version_2_is_made_beside_our_own_group(tmp_path: Path, plant: Plant, kernel_files: None) -> None:
    (tmp_path / "user.slice").mkdir()
    tree = plant([f"cgroup2 {tmp_path} cgroup2 rw 0 0"], own="/user.slice/session.scope")
    base = tmp_path / "user.slice" / own_name()
    assert tree.version == 2
    assert (base / "cgroup.subtree_control").read_text() == "+memory +pids"
    group = tree.create()
    group.open()
    group.set_limits(5 << 20, 9)
    assert (base / "1" / "memory.max").read_text() == str(5 << 20)
    assert (base / "1" / "memory.swap.max").read_text() == "0"
    assert (base / "1" / "pids.max").read_text() == "9"
    (base / "1" / "memory.events").write_text("low 0\nhigh 0\nmax 8\noom 2\noom_kill 3\noom_group_kill 0\n")
    (base / "1" / "pids.events").write_text("max 4\n")
    (base / "1" / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    counters = group.counters
    assert (counters.memory.since_begin().kills, counters.refused_forks(), counters.cpu_seconds()) == (3, 4, 1.5)


def test_without_rights_there_are_no_groups(tmp_path: Path, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, mode: int = 0o777) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr("springtide.sandbox.warden.cgroups.os.mkdir", refuse)
    tree = plant([f"cgroup2 {tmp_path} cgroup2 rw 0 0", f"cgroup {tmp_path} cgroup rw,memory 0 0"])
    assert tree.controllers == ()


def test_a_controller_that_cannot_be_delegated_leaves_nothing(tmp_path: Path, plant: Plant) -> None:
    tree = plant([f"cgroup2 {tmp_path} cgroup2 rw 0 0"])
    assert tree.controllers == ()
    assert not (tmp_path / own_name()).exists()


def test_what_another_user_left_is_left_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix, namespace, _, _ = own_name().split("-")
    dead = tmp_path / f"{prefix}-{namespace}-99999999-1"
    dead.mkdir()
    assert leftovers(str(tmp_path)) == [str(dead)]
    monkeypatch.setattr("springtide.sandbox.warden.owner.os.geteuid", lambda: os.stat(dead).st_uid + 1)
    assert leftovers(str(tmp_path)) == []


def test_leftovers_are_told_from_the_living() -> None:
    own = own_name()
    prefix, namespace, pid, started = own.split("-")
    assert int(started) == start_time(os.getpid()) > 0
    assert not is_leftover(own)
    assert is_leftover(f"{prefix}-{namespace}-{pid}-{int(started) + 1}")
    assert is_leftover(f"{prefix}-{namespace}-99999999-1")
    assert not is_leftover(f"{prefix}-{int(namespace) + 1}-99999999-1")
    assert not is_leftover("springtide-stray")
    assert not is_leftover("system.slice")
