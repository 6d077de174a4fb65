"""An episode at its limits: what is sampled, what is graded, and who is to blame."""

import asyncio

import pytest

from fakes.environment import FakeEnvironment
from springtide.core.errors import InvalidEpisodeError, UsageError
from springtide.core.member import Member, Purpose
from springtide.core.message import Message
from springtide.core.outcome import Ending, InvalidCause, Valid
from springtide.core.sampling import Sampled, SampleStop
from springtide.core.task import Split, Task
from springtide.core.trajectory import EnvironmentTimes
from springtide.ports.environment import Observation
from springtide.rollout.config import RolloutConfig
from springtide.rollout.episode import Player
from springtide.runtime.clock import LoopClock
from springtide.simulation.virtual_loop import run_virtual

STOP = 0
MEMBER = Member(Purpose.TRAIN, 0, 0)
TASK = Task(id="t", split=Split.TRAIN, index=0, seed=0)


class ScriptedSampler:
    """Says turns of these lengths; a turn ends with the stop token unless `max_tokens` cuts it."""

    def __init__(self, *lengths):
        self.lengths = list(lengths)
        self.requests = []

    async def sample(self, request):
        self.requests.append(request)
        wanted = [7] * (self.lengths[len(self.requests) - 1] - 1) + [STOP]
        said = tuple(wanted[: request.params.max_tokens])
        stop = SampleStop.STOP_TOKEN if said[-1] == STOP else SampleStop.LENGTH
        return Sampled(tokens=said, logprobs=(-1.0,) * len(said), versions=(0,) * len(said), stop=stop)


class CountingRenderer:
    """A prompt of `prompt` tokens, replies of `reply`; a cut turn is closed by one token more."""

    stop_tokens = (STOP,)

    def __init__(self, *, prompt=4, reply=3):
        self._prompt = prompt
        self._reply = reply

    def prompt(self, messages, tools=()):
        return (1,) * self._prompt

    def continuation(self, messages, *, closed=True):
        return (2,) * (self._reply + (not closed))

    def parse(self, tokens):
        return Message(role="assistant", content=f"{len(tokens)} tokens")


def play(sampler, *, renderer=None, environment=None, **limits):
    environment = environment or FakeEnvironment(turns=100)
    config = RolloutConfig(**({"max_turns": 10, "max_tokens_per_turn": 8, "max_context": 32} | limits))

    async def episode():
        player = Player(sampler=sampler, renderer=renderer or CountingRenderer(), config=config, clock=LoopClock())
        return await player.play(MEMBER, TASK, environment, temperature=1.0)

    return asyncio.run(episode()), environment


def lengths(trajectory):
    return [(len(segment.tokens), segment.sampled) for segment in trajectory.segments]


def test_the_last_turn_is_answered_and_graded_before_the_turn_limit_ends_the_episode():
    trajectory, environment = play(ScriptedSampler(2, 2), max_turns=2)
    assert environment.phases == ["reset", "step", "step", "verify", "close"]
    assert trajectory.outcome.ending is Ending.TURN_LIMIT
    assert lengths(trajectory) == [(4, False), (2, True), (3, False), (2, True)]


def test_what_the_environment_took_is_recorded_call_by_call():
    async def slow(seconds, value):
        await asyncio.sleep(seconds)
        return value

    steps = iter((2.0, 0.5))
    faults = {
        "reset": lambda: slow(3.0, Observation(messages=(Message(role="user", content="go"),))),
        "step": lambda: slow(next(steps), Observation(messages=(Message(role="user", content="on"),))),
        "verify": lambda: slow(4.0, Valid(reward=1.0)),
    }
    config = RolloutConfig(max_turns=2, max_tokens_per_turn=8, max_context=32)

    async def episode():
        player = Player(sampler=ScriptedSampler(2, 2), renderer=CountingRenderer(), config=config, clock=LoopClock())
        return await player.play(MEMBER, TASK, FakeEnvironment(faults=faults), temperature=1.0)

    trajectory, _ = run_virtual(episode)
    assert trajectory.environment == EnvironmentTimes(reset=3.0, steps=(2.0, 0.5), verify=4.0)
    assert trajectory.seconds == 9.5


def test_what_a_failing_step_took_is_recorded_too():
    def fail():
        raise InvalidEpisodeError("infrastructure", "box died")

    trajectory, _ = play(ScriptedSampler(2), environment=FakeEnvironment(turns=3, faults={"step": fail}))
    assert len(trajectory.environment.steps) == 1
    assert not trajectory.valid


def test_a_turn_cut_by_its_own_limit_is_acted_on_and_closed():
    trajectory, environment = play(ScriptedSampler(20, 2), max_turns=2)
    assert environment.phases.count("step") == 2
    assert lengths(trajectory) == [(4, False), (8, True), (4, False), (2, True)]


def test_a_turn_cut_by_the_context_is_a_valid_failure_that_nobody_acts_on():
    sampler = ScriptedSampler(5, 20)
    trajectory, environment = play(sampler, max_context=16)
    assert [request.params.max_tokens for request in sampler.requests] == [8, 4]
    assert environment.phases == ["reset", "step", "verify", "close"]
    assert trajectory.outcome.ending is Ending.CONTEXT_LIMIT
    assert trajectory.trained_tokens == 9


def test_a_turn_that_ends_exactly_at_the_context_is_still_acted_on():
    trajectory, environment = play(ScriptedSampler(5, 4), max_context=16)
    assert environment.phases == ["reset", "step", "step", "verify", "close"]
    assert trajectory.outcome.ending is Ending.CONTEXT_LIMIT


def test_no_request_ever_exceeds_the_context():
    for context in range(8, 40):
        sampler = ScriptedSampler(*[6] * 10)
        play(sampler, max_context=context)
        assert all(len(r.tokens) + r.params.max_tokens <= context for r in sampler.requests)


def test_a_prompt_without_room_for_an_answer_says_nothing_about_the_policy():
    trajectory, environment = play(ScriptedSampler(), renderer=CountingRenderer(prompt=32))
    assert trajectory.outcome.cause is InvalidCause.HARNESS
    assert trajectory.outcome.detail == (
        "the task's prompt of 32 tokens leaves no room in rollout.max_context = 32: raise it."
    )
    assert environment.phases == ["reset", "close"]


@pytest.mark.parametrize("phase", ["prompt", "continuation"])
def test_messages_that_cannot_be_rendered_are_the_environments_fault(phase):
    class Refusing(CountingRenderer):
        pass

    def refuse(self, *arguments, **options):
        raise UsageError("The chat template takes no system message.")

    setattr(Refusing, phase, refuse)
    trajectory, environment = play(ScriptedSampler(2, 2), renderer=Refusing())
    assert trajectory.outcome.cause is InvalidCause.HARNESS
    assert trajectory.outcome.detail == "The chat template takes no system message."
    assert environment.phases[-1] == "close"
