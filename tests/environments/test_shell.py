"""Generated shell tasks: pure, held apart, solvable, not solvable by mistake, and shown as a real shell shows them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.sandbox import LocalSandbox
from springtide.core.errors import InvalidEpisodeError, UnsafeSandboxError
from springtide.core.message import Message
from springtide.core.outcome import Ending, Outcome, Valid
from springtide.core.task import Split, Task
from springtide.environments.config import ShellConfig
from springtide.environments.shell import puzzle as records
from springtide.environments.shell.generate import FAMILIES, generate, puzzle_of
from springtide.environments.source import open_environments
from springtide.ports.environment import EnvironmentSource
from springtide.ports.sandbox import CommandEnd
from springtide.sandbox import SandboxConfig, open_sandbox

EVERYTHING = ShellConfig(levels=(1, 2, 3))
KINDS = [(family, level) for family in FAMILIES for level in (1, 2, 3)]
SEEDS = st.integers(0, 2**62)


def source(sandbox: LocalSandbox | None = None, **settings: Any) -> EnvironmentSource:
    return open_environments(ShellConfig(**settings), seed=3, sandbox=sandbox)


def task_of(family: str, level: int, *, seed: int = 2) -> Task:
    return Task(id="t", split=Split.TRAIN, index=0, seed=seed, data={"family": family, "level": level})


def oracle(task: Task) -> list[str]:
    """What an agent sends that solves `task`."""
    return [turn.text for turn in puzzle_of(task).oracle]


async def play(source: EnvironmentSource, task: Task, texts: Sequence[str]) -> tuple[Outcome, list[str]]:
    """Send `texts` as long as the episode lasts; the outcome and what was shown after each."""
    environment = source.create()
    outputs: list[str] = []
    try:
        await environment.reset(task)
        ending = Ending.TURN_LIMIT
        for text in texts:
            observation = await environment.step(Message(role="assistant", content=text))
            outputs += [message.text for message in observation.messages]
            if observation.done:
                ending = observation.ending
                break
        return await environment.verify(ending), outputs
    finally:
        await environment.close()


def run(
    task: Task, texts: Sequence[str], *, end: CommandEnd | None = None, **settings: Any
) -> tuple[Outcome, list[str]]:
    return asyncio.run(play(source(LocalSandbox(end=end), **settings), task, texts))


@pytest.mark.parametrize(("family", "level"), KINDS)
def test_scripts_do_in_a_real_shell_what_they_say(family: str, level: int) -> None:
    """The oracle succeeds, doing nothing fails, each flaw fails, and every output is the predicted one."""
    flaws = set()

    async def check(seed: int) -> None:
        task = task_of(family, level, seed=seed)
        puzzle = puzzle_of(task)
        flaws.update(puzzle.flaws)
        scripts = {"": puzzle.oracle, **puzzle.flaws}
        for flaw, script in scripts.items():
            outcome, outputs = await play(environments, task, [turn.text for turn in script])
            assert outputs == [turn.output for turn in script[:-1]], flaw
            assert isinstance(outcome, Valid)
            assert (outcome.reward, outcome.ending) == (float(flaw == ""), Ending.ANSWERED), (flaw, script)
            assert outcome.metrics[f"solved_{family}"] == outcome.reward
        outcome, _ = await play(environments, task, ["done"])
        assert isinstance(outcome, Valid)
        assert outcome.reward == 0.0

    async def check_all() -> None:
        for seed in range(6):
            await check(seed)

    environments = source(LocalSandbox())
    asyncio.run(check_all())
    assert len(flaws) >= 2


@given(SEEDS, st.sampled_from(KINDS))
def test_puzzles_are_pure_short_and_on_their_side_of_the_split(seed: int, kind: tuple[str, int]) -> None:
    family, level = kind
    puzzle = generate(family=family, level=level, seed=seed)
    assert puzzle == generate(family=family, level=level, seed=seed)
    other = generate(family=family, level=level, seed=seed ^ 1)
    assert (puzzle.prompt, puzzle.files) != (other.prompt, other.files)
    for script in (puzzle.oracle, *puzzle.flaws.values()):
        assert 3 <= len(script) <= 8
        assert all(len(turn.text) <= 70 and len(turn.output) <= 70 for turn in script)
        assert script[-1].text == "done" or script[-1].text.startswith("answer ")


def test_contents_of_held_out_tasks_never_occur_in_training() -> None:
    environments = open_environments(EVERYTHING, seed=0)
    held_out, seen = set(), set()
    for index in range(600):
        for purpose, contents in (("evaluate", held_out), ("train", seen)):
            puzzle = puzzle_of(environments.task(purpose=purpose, index=index))
            contents.add((puzzle.prompt, tuple(sorted(puzzle.files.items()))))
        shown = environments.demonstration(index)
        assert shown is not None
        puzzle = puzzle_of(shown.task)
        seen.add((puzzle.prompt, tuple(sorted(puzzle.files.items()))))
        assert shown.task.split is Split.TRAIN
    assert not held_out & seen
    assert len(held_out) > 550


def test_every_stretch_of_a_stream_holds_all_families_and_levels() -> None:
    environments = source(families=("log", "sum"), levels=(2, 3))
    kinds = [tuple(environments.task(purpose="train", index=index).data.values()) for index in range(4, 8)]
    assert sorted(kinds) == [("log", 2), ("log", 3), ("sum", 2), ("sum", 3)]


@pytest.mark.parametrize("flaw_rate", [0.0, 0.5, 1.0])
def test_demonstrations_are_flawed_at_the_stated_rate(flaw_rate: float) -> None:
    environments = source(flaw_rate=flaw_rate)
    shown = [environments.demonstration(index) for index in range(600)]
    assert all(demo is not None and demo.success == (demo.flaw == "") for demo in shown)
    assert shown == [source(flaw_rate=flaw_rate).demonstration(index) for index in range(600)]
    share = sum(demo is not None and not demo.success for demo in shown) / len(shown)
    assert abs(share - flaw_rate) < 0.09  # over 4 standard deviations


class TestGrading:
    """By the state of the box, whatever was said on the way."""

    def test_a_different_way_to_the_same_state_counts(self) -> None:
        task = task_of("sum", 1)
        (right,) = puzzle_of(task).expected
        outcome, _ = run(task, [f"echo {right} > answer", "done"])
        assert isinstance(outcome, Valid)
        assert outcome.reward == 1.0

    @pytest.mark.parametrize("extra", ["{right} or so", "{right}.0", "0{right}", "{right}\n{right}", "", "+{right}"])
    def test_an_answer_is_read_strictly(self, extra: str) -> None:
        task = task_of("sum", 1)
        (right,) = puzzle_of(task).expected
        outcome, _ = run(task, ["answer " + extra.format(right=right)])
        assert isinstance(outcome, Valid)
        assert outcome.reward == 0.0

    def test_tampering_with_the_question_does_not_change_the_answer(self) -> None:
        task = task_of("config", 1)
        outcome, outputs = run(task, ["echo 'echo ok' > check", "sh check", "done"])
        assert outputs[-1] == "ok"
        assert isinstance(outcome, Valid)
        assert outcome.reward == 0.0

    @pytest.mark.parametrize("damage", ["echo x=1 >>conf", "echo >>conf", "cp conf c; cat c >>conf", "rm conf"])
    def test_other_settings_must_stay(self, damage: str) -> None:
        task = task_of("config", 1)
        outcome, _ = run(task, [*oracle(task)[:-1], damage, "done"])
        assert isinstance(outcome, Valid)
        assert outcome.reward == 0.0

    def test_a_right_state_does_not_count_before_the_agent_says_so(self) -> None:
        task = task_of("config", 1)
        outcome, _ = run(task, oracle(task)[:-1])
        assert outcome == Valid(reward=0.0, ending=Ending.TURN_LIMIT, metrics={"commands": 3.0, "solved_config": 0.0})

    @given(st.binary(max_size=30))
    def test_any_content_can_be_read(self, content: bytes) -> None:
        for family in FAMILIES:
            assert generate(family=family, level=1, seed=2).solved(content) in (True, False)

    def test_settings_and_numbers_are_read(self) -> None:
        assert records.numbers(b"3\n40\n") == records.numbers(b"3\n40") == (3, 40)
        assert records.settings(b"a=3\nb=40\n") == {"a": 3, "b": 40}
        for content in (b"", b"\n", b"3\n\n", b" 3", b"3 ", b"03", b"-1", "٣".encode(), b"9999999999"):
            assert records.numbers(content) is None
        for content in (b"", b"a=1\na=1", b"a=1\n\n", b"a= 1", b"a", b"a=1#"):
            assert records.settings(content) is None


class TestLimits:
    @pytest.mark.parametrize(
        ("end", "ending"),
        [
            (CommandEnd.TIMEOUT, Ending.TIME_LIMIT),
            (CommandEnd.CPU_LIMIT, Ending.TIME_LIMIT),
            (CommandEnd.OOM, Ending.MEMORY_LIMIT),
            (CommandEnd.OUTPUT_LIMIT, Ending.OUTPUT_LIMIT),
            (CommandEnd.DISK_FULL, Ending.DISK_LIMIT),
        ],
    )
    def test_a_limit_that_the_agent_exceeds_is_a_valid_failure(self, end: CommandEnd, ending: Ending) -> None:
        outcome, _ = run(task_of("sum", 1), ["yes", "done"], end=end)
        assert isinstance(outcome, Valid)
        assert (outcome.reward, outcome.ending) == (0.0, ending)

    def test_too_many_processes_are_told(self) -> None:
        outcome, outputs = run(task_of("sum", 1), ["fork", "done"], end=CommandEnd.PIDS_LIMIT)
        assert outputs == ["too many processes"]
        assert isinstance(outcome, Valid)

    def test_a_sandbox_that_fails_is_infrastructure(self) -> None:
        with pytest.raises(InvalidEpisodeError, match="The sandbox failed") as caught:
            run(task_of("sum", 1), ["ls"], end=CommandEnd.SANDBOX_ERROR)
        assert caught.value.cause == "infrastructure"

    def test_a_command_gets_the_time_that_the_recipe_grants(self) -> None:
        outcome, _ = run(task_of("sum", 1), ["sleep 5"], command_seconds=0.05)
        assert isinstance(outcome, Valid)
        assert outcome.ending is Ending.TIME_LIMIT


class TestOutput:
    def test_is_cut_with_a_visible_mark(self) -> None:
        _, (output,) = run(task_of("sum", 1), ["yes | head -500"])
        assert output == ("y\n" * 100) + " [cut]"

    def test_is_said_to_be_empty(self) -> None:
        _, outputs = run(task_of("sum", 1), ["true", "false"])
        assert outputs == ["no output", "no output"]

    def test_errors_do_not_depend_on_the_shell(self) -> None:
        _, (output,) = run(task_of("sum", 1), ["nonsense"])
        assert output in ("nonsense: not found", "nonsense: command not found")
        assert records.shown(b"/bin/sh: line 1: nonsense: not found\n") == "nonsense: not found"

    def test_bytes_that_are_not_text_are_shown_anyway(self) -> None:
        assert records.shown(b"a\xffb") == "a\ufffdb"

    @pytest.mark.parametrize("text", ["", "  \n", "echo \0"])
    def test_what_is_no_command_is_told(self, text: str) -> None:
        assert run(task_of("sum", 1), [text])[1] == ["no command"]


def test_every_box_is_closed_once() -> None:
    sandbox = LocalSandbox()
    environments = source(sandbox)

    async def episodes() -> None:
        for index in range(3):
            task = environments.task(purpose="train", index=index)
            await play(environments, task, oracle(task))

    asyncio.run(episodes())
    assert [box.closes for box in sandbox.boxes] == [1, 1, 1]
    assert not any(box.folder.exists() for box in sandbox.boxes)


def in_real_boxes(story: Callable[[EnvironmentSource], Awaitable[None]]) -> None:
    """Where the host allows a safe level."""

    async def tell() -> None:
        sandbox = open_sandbox(SandboxConfig())
        try:
            await sandbox.start()
        except UnsafeSandboxError as error:
            pytest.skip(f"no safe sandbox on this host: {error}")
        try:
            await story(open_environments(EVERYTHING, seed=3, sandbox=sandbox))
        finally:
            await sandbox.close()

    asyncio.run(tell())


def test_scripts_hold_in_the_real_sandbox() -> None:
    """One seed of each family and level."""

    async def check_all(environments: EnvironmentSource) -> None:
        for family, level in KINDS:
            task = task_of(family, level)
            for flaw, script in {"": puzzle_of(task).oracle, **puzzle_of(task).flaws}.items():
                outcome, outputs = await play(environments, task, [turn.text for turn in script])
                assert outputs == [turn.output for turn in script[:-1]], (family, level, flaw)
                assert isinstance(outcome, Valid)
                assert outcome.reward == float(flaw == "")

    in_real_boxes(check_all)


BROKEN = ("mkdir answer", "chmod 555 .", "cat /dev/zero > big; :", "ln -s nowhere/else answer; chmod 555 .", "rm -rf .")
"""What keeps a file from being written, each as an agent could do it to its own box."""


def test_an_agent_that_breaks_its_box_fails_and_is_no_invalid_episode() -> None:
    """Else it would be tried again, and a policy would learn to break what it cannot solve."""

    async def check_all(environments: EnvironmentSource) -> None:
        task = task_of("sum", 1)
        (right,) = puzzle_of(task).expected
        for sabotage in BROKEN[:4]:
            outcome, _ = await play(environments, task, [sabotage, f"answer {right}"])
            assert isinstance(outcome, Valid), sabotage
            assert (outcome.reward, outcome.ending) == (0.0, Ending.ANSWERED), sabotage
        for sabotage in (*BROKEN, "cd /; chmod 0 /work", "exec 3</; kill -9 -1"):
            for last in ("done", "answer 1", "sh check"):
                outcome, _ = await play(environments, task, [sabotage, last])
                assert isinstance(outcome, Valid), (sabotage, last)

    in_real_boxes(check_all)


def test_what_stands_in_the_file_is_graded_even_if_it_cannot_be_replaced() -> None:
    async def check(environments: EnvironmentSource) -> None:
        task = task_of("sum", 1)
        (right,) = puzzle_of(task).expected
        outcome, _ = await play(environments, task, [f"echo {right} > answer; chmod 555 .", "answer 0"])
        assert isinstance(outcome, Valid)
        assert outcome.reward == 1.0

    in_real_boxes(check)
