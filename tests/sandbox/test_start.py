"""A warden that cannot start, at first or in the middle of a run, is told in one sentence."""

import os
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sandbox.host import LIMITS, await_gone, descendants
from springtide.core.errors import InvalidEpisodeError, UnsafeSandboxError, UsageError
from springtide.ports.sandbox import SandboxLevel
from springtide.sandbox import LevelReport, SandboxConfig, probe, wire
from springtide.sandbox.linux import LinuxSandbox

Run = Callable[[Coroutine[Any, Any, Any]], Any]
MUTE = "raise SystemExit(1)"
WORDS = f"import os, sys; os.write(int(sys.argv[2]), {wire.reply(wire.FAILED, detail='no room for me')!r})"
DEAF = "import time; time.sleep(3600)"


@pytest.fixture
def start_as(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Wardens run this script instead."""

    def replace(script: str) -> None:
        (tmp_path / "boot.py").write_text(script)
        monkeypatch.setattr("springtide.sandbox.warden_process._BOOT", tmp_path / "boot.py")

    return replace


@pytest.mark.parametrize(("script", "words"), [(MUTE, "it was killed"), (WORDS, "no room for me"), (DEAF, "in time")])
def test_a_warden_that_cannot_start_is_one_sentence_with_its_last_words(
    start_as: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, run: Run, script: str, words: str
) -> None:
    start_as(script)
    if script is DEAF:
        monkeypatch.setattr("springtide.sandbox.linux._PATIENCE_SECONDS", 0.05)
    sandbox = LinuxSandbox(SandboxConfig())
    with pytest.raises(UnsafeSandboxError, match=rf"could not start \(.*{words}.*\): `springtide sandbox` tries"):
        run(sandbox.start())
    run(sandbox.close())


def test_a_process_that_cannot_be_made_is_told_too(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    def full(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", full)
    with pytest.raises(UnsafeSandboxError, match="temporarily unavailable"):
        run(LinuxSandbox(SandboxConfig()).start())
    assert all("temporarily unavailable" in report.reason for report in probe())


@pytest.mark.parametrize("state", ["dying", "dead"])
def test_in_the_middle_of_a_run_it_costs_an_episode_and_not_the_run(
    start_as: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    reports: dict[SandboxLevel, LevelReport],
    run: Run,
    state: str,
) -> None:
    if not any(report.usable and report.safe for report in reports.values()):
        pytest.skip("this host allows no safe level")

    async def story() -> None:
        older = descendants(os.getpid())
        sandbox = LinuxSandbox(SandboxConfig())
        await sandbox.start()
        warden = min(descendants(os.getpid()) - older)
        os.kill(warden, 9)
        if state == "dead":  # Before the event loop could hear of it.
            assert not await_gone({warden})
        start_as(WORDS)
        ends = []
        for _ in range(2):  # The first may still meet the old warden.
            with pytest.raises(InvalidEpisodeError) as raised:
                await sandbox.open(files={}, limits=LIMITS)
            assert raised.value.cause == "infrastructure"
            ends.append(raised.value.detail)
        assert "no room for me" in ends[-1]
        monkeypatch.undo()
        box = await sandbox.open(files={"f": b"back"}, limits=LIMITS)
        assert (await box.run("cat f")).output == b"back"
        await sandbox.close()

    run(story())


@pytest.mark.parametrize(
    ("script", "reason"), [(MUTE, "the warden ended"), (WORDS, "the warden ended: no room for me")]
)
def test_a_probe_reports_a_warden_that_cannot_start(start_as: Callable[[str], None], script: str, reason: str) -> None:
    start_as(script)
    reports = probe()
    assert [report.level for report in reports] == list(SandboxLevel)
    assert {report.reason for report in reports} == {reason}
    assert not any(report.usable for report in reports)


def test_a_folder_to_show_that_is_not_there_is_named(tmp_path: Path, run: Run) -> None:
    (tmp_path / "file").touch()
    for missing in ("/nonexistent/tools", "/etc/passwd"):
        sandbox = LinuxSandbox(SandboxConfig(read_only=(missing,)))
        with pytest.raises(UsageError, match=rf'sandbox\.read_only = "{missing}": there is no such folder'):
            run(sandbox.start())
