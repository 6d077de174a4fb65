"""Streams, the word game, and user classes of each kind through the loader."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.errors import InvalidEpisodeError, UsageError
from springtide.core.member import Member, Purpose
from springtide.core.message import Message
from springtide.core.outcome import Ending, Invalid, InvalidCause, Outcome, Valid
from springtide.core.task import Split
from springtide.core.trajectory import Trajectory
from springtide.environments.config import CustomConfig, WordGameConfig
from springtide.environments.source import open_environments
from springtide.environments.stream import Stream, held_out, task_seed
from springtide.ports.environment import EnvironmentSource

EXAMPLE = Path(__file__).parents[2] / "docs/examples/my_env.py"
SEEDS = st.integers(0, 10**6)

GYM = """
import random
class Guess:
    def __init__(self, tries=2): self.tries = tries
    def reset(self, *, seed): self.secret = random.Random(seed).randrange(3); return "0, 1 or 2?", {}
    def step(self, action):
        self.tries -= 1
        right = action == str(self.secret)
        return "yes" if right else "no", 1.0 if right else -0.25, right, self.tries == 0, {}
"""


def play(source: EnvironmentSource, policy: Callable[[tuple[Message, ...]], str], *, index: int = 0) -> Outcome:
    """One training episode; `policy` sees the messages so far. A broken environment gives its Invalid."""

    async def episode() -> Outcome:
        environment = source.create()
        try:
            observation = await environment.reset(source.task(purpose="train", index=index))
            messages = observation.messages
            while not observation.done:
                action = Message(role="assistant", content=policy(messages))
                observation = await environment.step(action)
                messages = (*messages, action, *observation.messages)
            return await environment.verify(observation.ending)
        finally:
            await environment.close()

    return asyncio.run(episode())


def custom(path: Path | str, name: str = "MyEnv", **settings: Any) -> EnvironmentSource:
    return open_environments(CustomConfig(path=f"{path}:{name}", **settings), seed=0)


def written(folder: Path, text: str) -> Path:
    file = folder / "env.py"
    file.write_text(text)
    return file


@given(SEEDS, SEEDS, SEEDS, SEEDS)
def test_held_out_seeds_are_never_trained_on_or_demonstrated(a: int, b: int, run_a: int, run_b: int) -> None:
    shut = task_seed(environment="e", run_seed=run_a, stream=Stream.EVALUATE, index=a)
    assert held_out(shut)
    for stream in (Stream.TRAIN, Stream.DEMONSTRATE):
        seed = task_seed(environment="e", run_seed=run_b, stream=stream, index=b)
        assert not held_out(seed)
        assert seed != shut
        assert 0 <= seed < 2**63


def test_tasks_are_pure_and_differ_by_stream_index_and_run() -> None:
    source = open_environments(WordGameConfig(), seed=5)
    again = open_environments(WordGameConfig(), seed=5)
    other = open_environments(WordGameConfig(), seed=6)
    tasks = [source.task(purpose=purpose, index=i) for purpose in ("train", "evaluate") for i in range(50)]
    assert tasks == [again.task(purpose=purpose, index=i) for purpose in ("train", "evaluate") for i in range(50)]
    assert len({task.id for task in tasks}) == len({task.seed for task in tasks}) == 100
    assert {task.split for task in tasks[:50]} == {Split.TRAIN}
    assert {task.split for task in tasks[50:]} == {Split.HELD_OUT}
    assert other.task(purpose="train", index=0).seed != tasks[0].seed


@pytest.mark.parametrize("level", [1, 2, 3])
class TestWordGame:
    def source(self, level: int, flaw_rate: float = 0.5) -> EnvironmentSource:
        return open_environments(WordGameConfig(level=level, flaw_rate=flaw_rate), seed=1)

    def test_the_right_words_win_and_one_mistake_loses(self, level: int) -> None:
        def right(messages: tuple[Message, ...]) -> str:
            return messages[-1].text.split()[1 if level > 1 else 0]

        def first(messages: tuple[Message, ...]) -> str:
            return "pass" if len(messages) > 3 else right(messages)

        assert play(self.source(level), right) == Valid(reward=1.0)
        assert play(self.source(level), first) == Valid(reward=0.0)

    def test_demonstrations_fail_exactly_when_flawed_at_the_stated_rate(self, level: int) -> None:
        source = self.source(level)
        shown = [source.demonstration(index) for index in range(400)]
        assert all(demo is not None and demo.success == (demo.flaw == "") for demo in shown)
        successes = sum(demo is not None and demo.success for demo in shown)
        assert 160 <= successes <= 240  # 200 +- 4 standard deviations
        assert source.demonstration(7) == self.source(level).demonstration(7)

    def test_demonstrations_are_on_training_seeds_that_rl_does_not_use(self, level: int) -> None:
        source = self.source(level)
        demo = source.demonstration(3)
        assert demo is not None
        assert demo.task.split is Split.TRAIN
        assert demo.task.seed not in {source.task(purpose="train", index=i).seed for i in range(100)}


class TestMyEnv:
    """The tutorial's environment, loaded as the tutorial says."""

    def test_is_short(self) -> None:
        assert len(EXAMPLE.read_text().splitlines()) < 30

    def test_plays(self) -> None:
        source = custom(EXAMPLE)
        assert play(source, lambda messages: min(messages[-1].text.split())) == Valid(reward=1.0)
        assert play(source, lambda messages: max(messages[-1].text.split())) == Valid(reward=0.0)

    def test_demonstrations_are_played_against_the_environment_itself(self) -> None:
        source = custom(EXAMPLE)
        shown = [source.demonstration(index) for index in range(200)]
        assert {demo.success for demo in shown if demo} == {True, False}
        for demo in shown:
            assert demo is not None
            assert demo.success == (demo.messages[-1].text == "right")
            assert [m.role for m in demo.messages[:3]] == ["system", "user", "assistant"]


def test_max_turns_ends_an_episode(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("    system =", "    max_turns = 2\n    system =")
    outcome = play(custom(written(tmp_path, text)), lambda messages: min(messages[-1].text.split()))
    assert outcome == Valid(reward=0.0, ending=Ending.TURN_LIMIT)


class TestGym:
    def test_rewards_are_summed(self, tmp_path: Path) -> None:
        source = custom(written(tmp_path, GYM), "Guess")
        answers = {guess: play(source, lambda _, guess=guess: guess) for guess in "012"}
        assert sorted(outcome.reward for outcome in answers.values()) == [-0.5, -0.5, 1.0]  # type: ignore[union-attr]
        assert {outcome.ending for outcome in answers.values() if outcome.reward < 0} == {Ending.TURN_LIMIT}  # type: ignore[union-attr]

    def test_or_the_last_one_counts(self, tmp_path: Path) -> None:
        source = custom(written(tmp_path, GYM), "Guess", gym_reward="last", options={"tries": 3})
        assert sorted(play(source, lambda _, g=g: g).reward for g in "012") == [-0.25, -0.25, 1.0]  # type: ignore[union-attr]

    def test_blocking_classes_run_on_a_thread(self, tmp_path: Path) -> None:
        text = GYM.replace('"0, 1 or 2?"', "__import__('threading').current_thread().name")
        for blocking in (False, True):
            seen: list[str] = []
            source = custom(written(tmp_path, text), "Guess", blocking=blocking)
            play(source, lambda messages, seen=seen: seen.append(messages[0].text) or "0")  # type: ignore[misc]
            assert (seen[0] == "MainThread") is not blocking

    def test_observations_that_are_not_text_are_invalid(self, tmp_path: Path) -> None:
        source = custom(written(tmp_path, GYM.replace('"yes" if right else "no"', "[1, 2]")), "Guess")
        with pytest.raises(Exception, match="TypeError raised in step: the observation is list, not text"):
            play(source, lambda _: "0")


CONTRACT = """
from springtide.core.member import Member, Purpose
from springtide.core.message import Message
from springtide.core.outcome import Valid
from springtide.ports.environment import Observation
class Full:
    async def reset(self, task): return Observation(messages=(Message(role="user", content=str(task.seed)),))
    async def step(self, action): return Observation(done=True)
    async def verify(self, ending): return Valid(reward=0.5)
    async def close(self): pass
"""


def test_a_class_with_the_full_contract_is_used_as_it_is(tmp_path: Path) -> None:
    source = custom(written(tmp_path, CONTRACT), "Full")
    assert play(source, lambda _: "x") == Valid(reward=0.5)
    assert source.demonstration(0) is None


SHOWN = """
from collections.abc import Iterator
from springtide.environments.text import Reply, TextEnvironment
log = []
class MyEnv(TextEnvironment):
    def start(self, rng): return "go"
    def reply(self, text): return Reply("again")
    def demonstrate(self, rng):
        {body}
    async def close(self): log.append("closed")
"""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("while True: yield 'x'", "RuntimeError: it does not end within 1000 turns"),
        ("raise KeyError('lost')", "KeyError: 'lost'"),
        ("yield 'x'; 1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("yield 3", "TypeError: it gave int 3, not text"),
        ("return 3", "TypeError: 'int' object is not iterable"),
        ("return iter(())", "the agent says nothing in it"),
        ("yield '\\ud800'", "its messages are not Messages"),
    ],
)
def test_a_demonstration_that_cannot_be_had_names_class_number_and_remedy(
    tmp_path: Path, body: str, words: str
) -> None:
    source = custom(written(tmp_path, SHOWN.format(body=body)))
    with pytest.raises(UsageError) as caught:
        source.demonstration(5)
    text = str(caught.value)
    assert text.startswith(f"environment: demonstration 5 of MyEnv failed, {words}")
    assert text.endswith("; mend `demonstrate`.")


def test_a_demonstration_may_be_as_long_as_its_class_allows(tmp_path: Path) -> None:
    text = SHOWN.format(body="while True: yield 'x'").replace(
        "(TextEnvironment):", "(TextEnvironment):\n    max_turns = 7"
    )
    shown = custom(written(tmp_path, text)).demonstration(0)
    assert shown is not None
    assert sum(message.role == "assistant" for message in shown.messages) == 7


@pytest.mark.parametrize("body", ["yield 'x'", "raise KeyError('lost')"])
def test_what_was_made_for_a_demonstration_is_closed(tmp_path: Path, body: str) -> None:
    source = custom(written(tmp_path, SHOWN.format(body=body)))
    with contextlib.suppress(UsageError):
        source.demonstration(0)
    module = sys.modules[type(source._create()).__module__]  # type: ignore[attr-defined]
    assert module.log == ["closed"]


def test_nothing_is_made_where_there_is_nothing_to_imitate(tmp_path: Path) -> None:
    class_body = "class Guess:\n    made = 0\n    def __new__(cls): cls.made += 1; return super().__new__(cls)"
    for text, name in ((GYM.replace("class Guess:", class_body), "Guess"), (CONTRACT, "Full")):
        source = custom(written(tmp_path, text), name)
        assert source.demonstration(0) is None
        if name == "Guess":
            made = type(source._create()._inner).made  # type: ignore[attr-defined]
            assert made == 1, "only what this test made itself"


FULL_DEMONSTRATION = (
    CONTRACT
    + """
    def demonstration(self, task):
        return {value}
from springtide.core.demonstration import Demonstration
from springtide.core.message import ToolSchema
SAID = (Message(role="user", content="x"), Message(role="assistant", content="y"))
"""
)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("'text'", "it is str, not a Demonstration"),
        ("Demonstration(task=task, messages=SAID[:1], success=True)", "the agent says nothing in it"),
        ("Demonstration(task=task, messages=('x',), success=True)", "its messages are not Messages"),
        (
            "Demonstration(task=task, messages=SAID, success=True,"
            " tools=(ToolSchema(name='t', description='', parameters={'a': b''}),))",
            "it has the tool 't' with parameters that are not JSON",
        ),
    ],
)
def test_a_demonstration_of_the_full_contract_is_looked_at_too(tmp_path: Path, value: str, words: str) -> None:
    source = custom(written(tmp_path, FULL_DEMONSTRATION.replace("{value}", value)), "Full")
    with pytest.raises(UsageError, match=rf"demonstration 0 of Full failed, {words}.*; mend `demonstration`\."):
        source.demonstration(0)
    fine = "Demonstration(task=task, messages=SAID, success=True)"
    good = custom(written(tmp_path, FULL_DEMONSTRATION.replace("{value}", fine)), "Full")
    assert good.demonstration(0) is not None
    absent = custom(written(tmp_path, FULL_DEMONSTRATION.replace("{value}", "None")), "Full")
    assert absent.demonstration(0) is None


def test_a_text_environment_that_raises_is_invalid(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("if text != min(self.letters):", "if 1 / 0:")
    source = custom(written(tmp_path, text))
    with pytest.raises(Exception, match="ZeroDivisionError raised in step"):
        play(source, lambda _: "0")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("env.py", "names no class; write FILE.py:CLASS"),
        (":MyEnv", "names no class"),
        ("missing.py:MyEnv", "there is no file missing.py"),
        ("no_such_package.module:MyEnv", "there is no module no_such_package"),
        ("springtide.environments.no_such:MyEnv", "there is no module springtide.environments.no_such"),
        ("{file}:Missing", r"there is no Missing in .*env.py \(it defines Broken, Needs\)"),
        ("{half}:Half", "derives from TextEnvironment without reply"),
        ("{file}:value", "value is a int, not a class"),
        ("{file}:Broken", "async reset, step, verify, close missing.*TextEnvironment"),
        ("{bad}:MyEnv", "cannot be imported: RuntimeError: out of cheese"),
        ("{syntax}:MyEnv", "cannot be imported: SyntaxError"),
        ("{exits}:MyEnv", "cannot be imported: SystemExit"),
    ],
)
def test_a_path_that_cannot_be_loaded_says_why(tmp_path: Path, path: str, words: str) -> None:
    text = "value = 1\nclass Broken: ...\nclass Needs:\n  def __init__(self, size): ...\n"
    (tmp_path / "bad.py").write_text("raise RuntimeError('out of cheese')")
    (tmp_path / "syntax.py").write_text("class MyEnv")
    (tmp_path / "exits.py").write_text("raise SystemExit(2)")
    (tmp_path / "half.py").write_text(
        "from springtide.environments.text import TextEnvironment\n"
        "class Half(TextEnvironment):\n  def start(self, rng): return 'x'\n"
    )
    files = {"file": written(tmp_path, text), **{n: tmp_path / f"{n}.py" for n in ("bad", "syntax", "exits", "half")}}
    with pytest.raises(UsageError, match=words):
        open_environments(CustomConfig(path=path.format(**files)), seed=0)


def test_options_must_fit_the_constructor(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"options do not fit .*unexpected keyword argument 'speed'"):
        custom(written(tmp_path, GYM), "Guess", options={"speed": 1})


def test_invalid_is_not_a_reward(tmp_path: Path) -> None:
    text = CONTRACT.replace("Valid(reward=0.5)", "1 / 0")
    outcome = play(custom(written(tmp_path, text), "Full"), lambda _: "x")
    assert isinstance(outcome, Invalid)


RACE = """
from springtide.core.outcome import Valid
from springtide.environments.text import Reply, TextEnvironment

class Race(TextEnvironment):
    def start(self, rng):
        return "go"

    def reply(self, text):
        return Reply("", done=True)

    @staticmethod
    async def score_group(members):
        {body}
"""


def graded(tmp_path: Path, body: str) -> Sequence[Outcome]:
    (tmp_path / "race.py").write_text(RACE.format(body=body))
    made = custom(tmp_path / "race.py", "Race")
    assert made.scores_groups
    outcomes = [Valid(reward=0.0), Valid(reward=0.0), Invalid(cause=InvalidCause.HARNESS, detail="lost")]
    members = [
        Trajectory(member=Member(Purpose.TRAIN, 0, slot), task_id="t", segments=(), outcome=outcome, turns=slot)
        for slot, outcome in enumerate(outcomes)
    ]
    return asyncio.run(made.score_group(members))  # type: ignore[arg-type]


def test_a_class_may_grade_its_groups_as_a_whole(tmp_path: Path) -> None:
    best = "return [Valid(reward=float(m.turns == 1)) for m in members]"
    first, second, third = graded(tmp_path, best)
    assert (first, second) == (Valid(reward=0.0), Valid(reward=1.0))
    assert isinstance(third, Invalid), "what was invalid stays so"
    assert third.detail == "lost"
    assert graded(tmp_path, "return None")[0] == Valid(reward=0.0)
    assert not custom(EXAMPLE).scores_groups


@pytest.mark.parametrize("body", ["raise KeyError('judge')", "return [Valid(reward=1.0)]", "return [3] * len(members)"])
def test_a_group_that_cannot_be_graded_is_invalid(tmp_path: Path, body: str) -> None:
    for outcome in graded(tmp_path, body)[:2]:
        assert isinstance(outcome, Invalid)
        assert "score_group" in outcome.detail


@pytest.mark.parametrize("declared", [None, True, False])
def test_what_a_class_declares_about_its_replies_is_read_and_enforced(tmp_path: Path, declared: bool | None) -> None:
    line = "" if declared is None else f"    tool_replies_only = {declared}\n"
    (tmp_path / "desk.py").write_text(
        "from springtide.core.message import Message\n"
        "from springtide.core.outcome import Valid\n"
        "from springtide.ports.environment import Observation\n"
        f"class Desk:\n{line}"
        "    async def reset(self, task): return Observation(messages=(Message(role='user', content='go'),))\n"
        "    async def step(self, action): return Observation(messages=(Message(role='user', content='no'),))\n"
        "    async def verify(self, ending): return Valid(reward=1.0, ending=ending)\n"
        "    async def close(self): pass\n"
    )
    source = custom(tmp_path / "desk.py", "Desk")
    assert source.tool_replies_only is bool(declared)

    async def answer() -> Any:
        environment = source.create()
        try:
            await environment.reset(source.task(purpose="train", index=0))
            return await environment.step(Message(role="assistant", content="x"))
        finally:
            await environment.close()

    if declared:
        with pytest.raises(InvalidEpisodeError, match="tool_replies_only"):
            asyncio.run(answer())
    else:
        assert asyncio.run(answer()).messages[0].role == "user"
