"""Every attempt of the battery fails, is named for what it was, and leaves nothing."""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from springtide.sandbox.battery import Attempt, Planted, attempt_once, attempts, has_python, planted
from springtide.sandbox.linux import LinuxSandbox

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(scope="module")
def host() -> Iterator[Planted]:
    with planted() as host:
        yield host


@pytest.mark.parametrize("attempt", attempts(python=True), ids=lambda attempt: attempt.name)
def test_is_contained(attempt: Attempt, sandbox: LinuxSandbox, host: Planted, run: Run) -> None:
    if "python3" in attempt.command and not run(has_python(sandbox)):
        pytest.skip("there is no python3 in the box")
    counted = "pids" in sandbox.limits_by and sandbox.level != "bubblewrap"
    verdict = run(attempt_once(sandbox, attempt, host, counted=counted))
    assert verdict.contained, verdict.detail
