"""Plain code of a user's class is called in place and watched, or on a thread; never does one call stall all episodes
unnoticed."""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from springtide.core.errors import UsageError
from springtide.core.message import Message
from springtide.environments import hooks
from springtide.environments.config import CustomConfig
from springtide.environments.source import open_environments
from springtide.ports.environment import EnvironmentSource
from springtide.simulation.virtual_loop import run_virtual

TEXT = """
from springtide.environments.text import Reply, TextEnvironment
class Slow(TextEnvironment):
    def __init__(self, nap=lambda where: None): self.nap = nap; nap("__init__")
    def start(self, rng): self.nap("start"); return "go"
    def reply(self, text): self.nap("reply"); return Reply("again")
"""
GYM = """
class Slow:
    def __init__(self, nap=lambda where: None): self.nap = nap; nap("__init__")
    def reset(self, *, seed): self.nap("reset"); return "go", {}
    def step(self, action): self.nap("step"); return "again", 0.0, False, False, {}
"""
CONTRACT = """
from springtide.core.message import Message
from springtide.core.outcome import Valid
from springtide.ports.environment import Observation
class Slow:
    def __init__(self, nap=lambda where: None): nap("__init__")
    async def reset(self, task): return Observation(messages=(Message(role="user", content="go"),))
    async def step(self, action): return Observation(done=True)
    async def verify(self, ending): return Valid(reward=0.5)
    async def close(self): pass
"""


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., EnvironmentSource]:
    def make(text: str, **settings: Any) -> EnvironmentSource:
        (tmp_path / "env.py").write_text(text)
        return open_environments(CustomConfig(path=f"{tmp_path}/env.py:Slow", **settings), seed=0)

    return make


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[[str], None]]:
    """A nap of 1.2 s on a pretended clock, in the hook of that name."""
    time = [100.0]
    monkeypatch.setattr(hooks, "monotonic", lambda: time[0])
    monkeypatch.setattr(hooks, "_warned", set())

    def in_hook(slow: str) -> Callable[[str], None]:
        def nap(where: str) -> None:
            time[0] += 1.2 if where == slow else 0.01

        return nap

    return in_hook


def play(source: EnvironmentSource, *, episodes: int = 2) -> None:
    async def all_of_them() -> None:
        for index in range(episodes):
            environment = source.create()
            await environment.reset(source.task(purpose="train", index=index))
            await environment.step(Message(role="assistant", content="x"))
            await environment.close()

    run_virtual(all_of_them)


REMEDIES = {
    TEXT: "set `blocking = True` in the class",
    GYM: "set environment.blocking = true",
    CONTRACT: "move what takes long to reset",
}
HOOKS = [(TEXT, name) for name in ("__init__", "start", "reply")] + [(GYM, name) for name in ("reset", "step")]


@pytest.mark.parametrize(("text", "slow"), [*HOOKS, (CONTRACT, "__init__")])
def test_a_hook_that_keeps_the_loop_waiting_is_named_once_with_the_remedy(
    made: Callable[..., EnvironmentSource],
    naps: Callable[[str], Callable[[str], None]],
    caplog: pytest.LogCaptureFixture,
    text: str,
    slow: str,
) -> None:
    with caplog.at_level(logging.WARNING, "springtide.environments"):
        play(made(text, options={"nap": naps(slow)}))
    assert [entry.getMessage() for entry in caplog.records] == [
        f"Slow.{slow} took 1.2 s on the loop that serves all episodes: {REMEDIES[text]}."
    ]


@pytest.mark.parametrize("text", [TEXT, GYM])
def test_a_class_that_says_that_it_blocks_runs_on_threads_from_its_constructor_on(
    made: Callable[..., EnvironmentSource], caplog: pytest.LogCaptureFixture, text: str
) -> None:
    seen: list[tuple[str, bool]] = []

    def nap(where: str) -> None:
        seen.append((where, threading.current_thread() is threading.main_thread()))

    settings: dict[str, Any] = {"options": {"nap": nap}}
    if text is GYM:
        settings["blocking"] = True
    else:
        text = text.replace("class Slow(TextEnvironment):", "class Slow(TextEnvironment):\n    blocking = True")
    source = made(text, **settings)

    async def episode() -> None:
        environment = source.create()
        await environment.reset(source.task(purpose="train", index=0))
        await environment.step(Message(role="assistant", content="x"))

    asyncio.run(episode())
    assert {where for where, _ in seen} >= {"__init__"}
    assert len(seen) == 3
    assert not any(main for _, main in seen)


@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        (TEXT, {"blocking": True}, r"environment\.blocking = true is for .* leave it out and set `blocking = True`"),
        (CONTRACT, {"blocking": True}, r"environment\.blocking = true is for .* leave it out and let its hooks await"),
        (TEXT, {"gym_reward": "last"}, r'environment\.gym_reward = "last" is for Gym-style classes, and Slow is none'),
    ],
)
def test_a_setting_that_the_class_would_ignore_is_refused(
    made: Callable[..., EnvironmentSource], text: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        made(text, **settings)
