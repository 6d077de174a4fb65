"""One event loop and one sandbox per level for the whole folder; at the end nothing of them may be left."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from sandbox.host import LIMITS, leftovers
from springtide.ports.sandbox import Box, SandboxLevel
from springtide.sandbox import LevelReport, SandboxConfig, probe
from springtide.sandbox.linux import LinuxSandbox

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture(scope="session")
def run() -> Iterator[Run[Any]]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="session")
def reports() -> dict[SandboxLevel, LevelReport]:
    return {report.level: report for report in probe()}


@pytest.fixture(scope="session")
def open_level(run: Run[Any], reports: dict[SandboxLevel, LevelReport]) -> Iterator[Callable[[str], LinuxSandbox]]:
    """A started sandbox of the named level, one for all tests; skips with the host's reason."""
    started: dict[str, LinuxSandbox] = {}

    def open_level(level: str) -> LinuxSandbox:
        report = reports[SandboxLevel(level)]
        if not report.usable:
            pytest.skip(f"no {level} on this host: {report.reason}")
        if level not in started:
            sandbox = LinuxSandbox(SandboxConfig(level=level))
            run(sandbox.start())
            started[level] = sandbox
        return started[level]

    yield open_level
    for sandbox in started.values():
        run(sandbox.close())
    assert leftovers() == set()


@pytest.fixture(params=["namespaces", "user_namespaces", "bubblewrap"])
def sandbox(request: pytest.FixtureRequest, open_level: Callable[[str], LinuxSandbox]) -> LinuxSandbox:
    """Each safe level in turn."""
    return open_level(request.param)


@pytest.fixture
def box(sandbox: LinuxSandbox, run: Run[Any]) -> Iterator[Box]:
    box = run(sandbox.open(files={}, limits=LIMITS))
    yield box
    run(box.close())
