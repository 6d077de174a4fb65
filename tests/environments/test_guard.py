"""Whatever an environment does, the guard turns it into a typed result."""

import asyncio
import contextlib
import datetime
import logging
from collections.abc import Callable
from typing import Any

import pytest

from fakes.environment import FakeEnvironment
from springtide.core.errors import InvalidEpisodeError
from springtide.core.message import ImagePart, Message, ToolCall, ToolSchema
from springtide.core.outcome import Ending, Invalid, InvalidCause, Valid
from springtide.core.task import Split, Task
from springtide.environments.guard import GuardedEnvironment
from springtide.ports.environment import Environment, Observation, PhaseLimits
from springtide.simulation.virtual_loop import run_virtual

TASK = Task(id="t", split=Split.TRAIN, index=0, seed=0)
ACTION = Message(role="assistant", content="x")
LIMITS = PhaseLimits(reset=20, step=20, verify=20, close=20)
GENEROUS = PhaseLimits()
REPLY = Message(role="user", content="r")


def raises(error: BaseException) -> Callable[[], Any]:
    def phase() -> Any:
        raise error

    return phase


def hang() -> Any:
    return asyncio.sleep(3600)


def play(limits: PhaseLimits = GENEROUS, create: Callable[[], Environment] | None = None, **faults: Any) -> Any:
    """The outcome of an episode that goes through all phases; an InvalidEpisodeError becomes its Invalid."""
    environment = FakeEnvironment(faults={k: v if callable(v) else (lambda v=v: v) for k, v in faults.items()})
    guarded = GuardedEnvironment(create or (lambda: environment), limits)

    async def episode() -> Any:
        try:
            await guarded.reset(TASK)
            observation = await guarded.step(ACTION)
            return await guarded.verify(observation.ending)
        except InvalidEpisodeError as error:
            return Invalid(cause=InvalidCause(error.cause), detail=error.detail)
        finally:
            await guarded.close()
            await guarded.close()

    outcome, _ = run_virtual(episode)
    if create is None:
        assert environment.phases.count("close") == 1
    return outcome


def test_a_well_behaved_environment_passes_through() -> None:
    assert play() == Valid(reward=1.0)


@pytest.mark.parametrize("phase", ["reset", "step", "verify"])
def test_an_exception_is_invalid_and_says_where(phase: str) -> None:
    outcome = play(**{phase: raises(KeyError("lost"))})
    assert outcome.detail == f"KeyError raised in {phase}: 'lost'"
    assert outcome.cause == (InvalidCause.VERIFIER if phase == "verify" else InvalidCause.HARNESS)


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), RecursionError()])
def test_exceptions_that_would_stop_the_run_are_caught(error: BaseException) -> None:
    outcome = play(step=raises(error))
    assert outcome.cause is InvalidCause.HARNESS
    assert type(error).__name__ in outcome.detail


@pytest.mark.parametrize("phase", ["reset", "step", "verify"])
def test_an_error_that_names_its_cause_keeps_it(phase: str) -> None:
    outcome = play(**{phase: raises(InvalidEpisodeError("infrastructure", "the box is gone"))})
    assert outcome == Invalid(cause=InvalidCause.INFRASTRUCTURE, detail="the box is gone")


def test_an_unknown_cause_is_the_harness_s() -> None:
    assert play(step=raises(InvalidEpisodeError("weather", "rain"))).cause is InvalidCause.HARNESS


@pytest.mark.parametrize("phase", ["reset", "step", "verify"])
def test_a_phase_that_hangs_is_infrastructure(phase: str) -> None:
    outcome = play(LIMITS, **{phase: hang})
    assert outcome == Invalid(cause=InvalidCause.INFRASTRUCTURE, detail=f"{phase} did not return within 20 s.")


def test_an_environment_that_swallows_cancellation_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("springtide.environments.guard._GRACE", 20)

    async def stubborn() -> None:
        deadline = asyncio.get_running_loop().time() + 300
        while asyncio.get_running_loop().time() < deadline:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(50)

    assert play(LIMITS, step=stubborn).cause is InvalidCause.INFRASTRUCTURE


def test_a_constructor_that_raises_is_invalid() -> None:
    outcome = play(create=raises(OSError("no licence")))
    assert outcome == Invalid(cause=InvalidCause.HARNESS, detail="OSError raised in reset: no licence")


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        Observation(),
        Observation(messages=("text",)),  # type: ignore[arg-type]
        Observation(messages=(Message(role="robot", content="x"),)),  # type: ignore[arg-type]
        Observation(messages=(Message(role="user", content=3),)),  # type: ignore[arg-type]
        Observation(messages=(Message(role="user", content="\ud800"),)),
        Observation(messages=(Message(role="tool", content="x", tool_call_id="\ud800"),)),
        Observation(messages=(Message(role="tool", content="x", name=3),)),  # type: ignore[arg-type]
        Observation(
            messages=(Message(role="user", content=(ImagePart(sha256=b"x", media_type="", width=1, height=1),)),)
        ),  # type: ignore[arg-type]
        Observation(messages=(REPLY,), tools=("tool",)),  # type: ignore[arg-type]
        Observation(messages=(REPLY,), done=1),  # type: ignore[arg-type]
        Observation(messages=(REPLY,), ending="over"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("phase", ["reset", "step"])
def test_garbage_observations_are_the_harness_s(phase: str, value: object) -> None:
    outcome = play(**{phase: lambda: value})
    assert outcome.cause is InvalidCause.HARNESS
    assert phase in outcome.detail


NOT_JSON = [b"x", datetime.datetime(2030, 5, 1, tzinfo=datetime.UTC), float("nan"), {"deep": [{"er": b"x"}]}]


@pytest.mark.parametrize("value", NOT_JSON)
def test_tools_and_calls_that_no_model_could_read_are_the_harness_s(value: object) -> None:
    tool = ToolSchema(name="look", description="", parameters={"default": value})
    call = Message(role="assistant", tool_calls=(ToolCall(name="look", arguments={"at": value}),))
    for reset, words in (
        (Observation(messages=(REPLY,), tools=(tool,)), "the tool 'look' with parameters that are not JSON"),
        (Observation(messages=(REPLY, call)), "a call of 'look' with arguments that are not JSON"),
    ):
        outcome = play(reset=reset)
        assert outcome.cause is InvalidCause.HARNESS
        assert outcome.detail.startswith(f"reset returned {words}")


def test_tools_and_calls_that_are_json_pass() -> None:
    fine = {"text": "ü", "list": [1, 2.5, None, True], "table": {"a": {}}}
    tool = ToolSchema(name="look", description="", parameters=fine)
    call = Message(role="assistant", tool_calls=(ToolCall(name="look", arguments=fine),))
    assert play(reset=Observation(messages=(REPLY, call), tools=(tool,))) == Valid(reward=1.0)


def test_the_agent_s_role_is_not_the_environment_s() -> None:
    assert "assistant" in play(step=Observation(messages=(ACTION,))).detail


def test_an_episode_cannot_be_over_before_it_began() -> None:
    assert "reset returned an episode that is over" in play(reset=Observation(messages=(REPLY,), done=True)).detail


@pytest.mark.parametrize(
    "value",
    [
        None,
        1.0,
        *(Valid(reward=reward) for reward in (float("nan"), float("inf"), True, "1.0", None)),  # type: ignore[arg-type]
        Valid(reward=1.0, metrics={"a": float("nan")}),
        Valid(reward=1.0, metrics=None),  # type: ignore[arg-type]
        Valid(reward=1.0, ending="done"),  # type: ignore[arg-type]
        Invalid(cause="weather", detail="rain"),  # type: ignore[arg-type]
    ],
)
def test_garbage_outcomes_never_become_a_reward(value: object) -> None:
    outcome = play(verify=lambda: value)
    assert outcome.cause is InvalidCause.HARNESS
    assert "verify returned" in outcome.detail


def test_integers_and_lists_are_made_what_the_contract_says() -> None:
    outcome = play(
        step=Observation(messages=[REPLY], done=True),  # type: ignore[arg-type]
        verify=Valid(reward=1, metrics={"n": 2}),
    )
    assert outcome == Valid(reward=1.0, metrics={"n": 2.0})
    assert type(outcome.reward) is float


@pytest.mark.parametrize(
    ("fault", "words"), [(raises(OSError("busy")), "OSError raised in close: busy"), (hang, "close did not return")]
)
def test_errors_and_hangs_in_close_are_said_once_and_not_raised(
    fault: Callable[[], Any], words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("springtide.environments.guard._unclosed", set())

    async def episode() -> None:
        for _ in range(2):
            guarded = GuardedEnvironment(lambda: FakeEnvironment(faults={"close": fault}), LIMITS)
            await guarded.reset(TASK)
            await guarded.close()

    with caplog.at_level(logging.WARNING, "springtide.environments"):
        run_virtual(episode)
    (said,) = [entry.getMessage() for entry in caplog.records]
    assert said.startswith(f"FakeEnvironment is not closed properly: {words}")


def test_cancelling_an_episode_cancels_its_phase_and_still_closes() -> None:
    phases: list[str] = []
    cancelled = []
    stepping = asyncio.Event()

    async def long_step() -> Observation:
        stepping.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        raise AssertionError

    guarded = GuardedEnvironment(lambda: FakeEnvironment(faults={"step": long_step}, phases=phases), PhaseLimits())

    async def episode() -> None:
        try:
            await guarded.reset(TASK)
            await guarded.step(ACTION)
        finally:
            await guarded.close()

    async def run() -> None:
        task = asyncio.create_task(episode())
        await stepping.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert cancelled == [True]
    assert phases == ["reset", "step", "close"]


def test_the_ending_reaches_the_verifier() -> None:
    guarded = GuardedEnvironment(FakeEnvironment, PhaseLimits())

    async def episode() -> Any:
        await guarded.reset(TASK)
        return await guarded.verify(Ending.CONTEXT_LIMIT)

    assert asyncio.run(episode()) == Valid(reward=1.0, ending=Ending.CONTEXT_LIMIT)


@pytest.mark.parametrize(
    "outcome",
    [
        Valid(reward=1.0, detail=3),  # type: ignore[arg-type]
        Valid(reward=1.0, detail="\ud800"),
        Valid(reward=1.0, metrics={"\ud800": 1.0}),
        Invalid(cause=InvalidCause.INFRASTRUCTURE, detail="\ud800"),
    ],
)
def test_an_outcome_that_the_journal_could_not_store_is_the_harness_s(outcome: object) -> None:
    graded = play(verify=lambda: outcome)
    assert graded.cause is InvalidCause.HARNESS
    assert "verify" in graded.detail
    graded.detail.encode()


@pytest.mark.parametrize("role", ["user", "system"])
def test_an_environment_that_declares_tool_replies_only_is_held_to_it(role: Any) -> None:
    def step(declared: bool, *, done: bool) -> Observation:
        answer = Observation(messages=(Message(role="tool", content="a"), Message(role=role, content="b")), done=done)
        guarded = GuardedEnvironment(
            lambda: FakeEnvironment(faults={"step": lambda: answer}), GENEROUS, tool_replies_only=declared
        )

        async def episode() -> Observation:
            await guarded.reset(TASK)
            try:
                return await guarded.step(Message(role="assistant", content="{", parse_error="not JSON"))
            finally:
                await guarded.close()

        return run_virtual(episode)[0]

    assert len(step(False, done=False).messages) == 2
    assert step(True, done=True).done, "nobody reads what is said at the end"
    with pytest.raises(InvalidEpisodeError, match=rf"role {role}, but the environment declares tool_replies_only") as e:
        step(True, done=False)
    assert e.value.cause == InvalidCause.HARNESS
