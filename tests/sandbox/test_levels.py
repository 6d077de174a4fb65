"""The strongest level that the host allows is taken; a weak one only by name; and refusals say why and what to do."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sandbox.host import LIMITS, leftovers
from springtide.core.errors import UnsafeSandboxError
from springtide.ports.sandbox import CommandEnd, SandboxLevel
from springtide.sandbox import LevelReport, SandboxConfig, open_sandbox
from springtide.sandbox.linux import LinuxSandbox

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Reports = dict[SandboxLevel, LevelReport]


def test_each_level_is_reported_strongest_first(reports: Reports) -> None:
    assert list(reports) == list(SandboxLevel)
    assert [report.safe for report in reports.values()] == [True, True, True, False, False]
    assert all(report.usable != bool(report.reason) for report in reports.values())
    assert reports[SandboxLevel.NONE].usable


def test_auto_takes_the_strongest(reports: Reports, run: Run) -> None:
    strongest = next((level for level, report in reports.items() if report.usable and report.safe), None)
    if strongest is None:
        pytest.skip("this host allows no safe level")

    async def story() -> SandboxLevel:
        sandbox = open_sandbox(SandboxConfig(allow_unsafe="none"))
        await sandbox.start()
        await sandbox.start()
        await sandbox.close()
        return sandbox.level

    assert run(story()) is strongest


def test_a_named_level_that_cannot_be_had_is_refused_with_its_reason(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr("springtide.sandbox.linux.find_bubblewrap", lambda: "/nonexistent/bwrap")
    sandbox = open_sandbox(SandboxConfig(level="bubblewrap"))
    with pytest.raises(UnsafeSandboxError, match=r"sandbox\.level = 'bubblewrap' cannot be had .*nonexistent.*'auto'"):
        run(sandbox.start())


def test_only_unsafe_levels_left_is_refused_and_taken_by_name(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr("springtide.sandbox.linux.find_bubblewrap", lambda: "")
    monkeypatch.setattr("springtide.sandbox.linux.SAFE_LEVELS", (SandboxLevel.BUBBLEWRAP,))
    with pytest.raises(
        UnsafeSandboxError, match=r"bwrap is not installed.*run as root.*sandbox\.allow_unsafe = 'landlock'"
    ):
        run(open_sandbox(SandboxConfig()).start())

    async def story() -> SandboxLevel:
        sandbox = open_sandbox(SandboxConfig(allow_unsafe="none"))
        await sandbox.start()
        await sandbox.close()
        return sandbox.level

    assert run(story()) in (SandboxLevel.LANDLOCK, SandboxLevel.NONE)


@pytest.mark.parametrize("level", [SandboxLevel.LANDLOCK, SandboxLevel.NONE])
def test_an_unsafe_level_runs_commands_and_clears_up(
    level: SandboxLevel, reports: Reports, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not reports[level].usable:
        pytest.skip(f"no {level} on this host: {reports[level].reason}")
    monkeypatch.setenv("HOST_SECRET", "from-the-host")
    secret = tmp_path / "secret"
    secret.write_text("from-the-host")
    for folder in (secret, *list(secret.parents)[:3]):
        folder.chmod(0o755)

    async def story() -> None:
        sandbox = LinuxSandbox(SandboxConfig(), levels=[level])
        await sandbox.start()
        for _ in range(2):
            box = await sandbox.open(files={"in/f": b"hello"}, limits=LIMITS)
            result = await box.run("cat in/f; env; (setsid sleep 300 &); chmod 0 in; mkdir -p d/e; chmod 0 d")
            assert (result.end, result.level) == (CommandEnd.OK, level)
            assert result.output.startswith(b"hello")
            assert b"from-the-host" not in result.output
            assert (await box.run("sleep 60", wall_seconds=0.1)).end is CommandEnd.TIMEOUT
            assert (await box.run("cat /dev/zero")).end is CommandEnd.OUTPUT_LIMIT
            seen = await box.run(f"cat {secret}; touch /tmp/springtide-stray; cat /proc/1/comm")
            if level is SandboxLevel.LANDLOCK:
                assert seen.output.count(b"Permission denied") == 3, seen.output
            await box.close()
        await sandbox.close()

    run(story())
    Path("/tmp/springtide-stray").unlink(missing_ok=True)
    assert leftovers() == set()
