import asyncio

import pytest

from springtide.core.errors import UsageError
from springtide.core.member import Member, Purpose
from springtide.core.outcome import Valid
from springtide.core.sampling import Sampled, SampleStop
from springtide.core.task import Split, Task
from springtide.runtime.clock import LoopClock
from springtide.simulation.script import Scripts
from springtide.simulation.tokens import require_appending, token_group, token_player
from springtide.simulation.virtual_loop import run_virtual
from springtide.simulation.workload import preset

VOCABULARY = 50


class Parrot:
    """A Sampler that answers with token 7 and keeps what it was asked."""

    def __init__(self):
        self.requests = []

    async def sample(self, request):
        self.requests.append(request)
        tokens = request.params.max_tokens
        return Sampled(tokens=(7,) * tokens, logprobs=(-1.0,) * tokens, versions=(3,) * tokens, stop=SampleStop.LENGTH)


def play(scripts, *members):
    """Trajectories of (task, slot), what was asked for them, and when they ended."""
    asked = {}

    async def main():
        async def one(task, slot):
            parrot = Parrot()
            player = token_player(scripts=scripts, sampler=parrot, clock=LoopClock(), vocabulary=VOCABULARY)
            played = await player.play(
                Member(Purpose.TRAIN, task, slot),
                Task(id=str(task), split=Split.TRAIN, index=task, seed=task),
                None,
                temperature=1.0,
            )
            asked[task, slot] = parrot.requests
            return played, asyncio.get_running_loop().time()

        return await asyncio.gather(*(one(*member) for member in members))

    return run_virtual(main)[0], asked


def test_an_episode_is_as_its_script_says():
    scripts = Scripts(preset("shop"), 3)
    script = scripts.script(task=5, slot=1)
    [(played, ended)], asked = play(scripts, (5, 1))
    requests = asked[5, 1]
    assert [request.length for request in requests] == [turn.context for turn in script.turns]
    assert [request.params.max_tokens for request in requests] == [turn.output for turn in script.turns]
    assert [request.turn for request in requests] == list(range(len(script.turns)))
    assert all(not request.params.stop_tokens for request in requests), "nothing ends a turn but its length"
    assert played.lengths == script.trained
    assert played.trained_tokens == script.sampled
    assert played.oldest_version == 3
    assert played.reward == script.reward
    assert ended == pytest.approx(script.reset + sum(turn.latency for turn in script.turns) + script.grade)


def test_what_was_sampled_stays_in_the_context_and_only_that_is_trained_on():
    scripts = Scripts(preset("shop"), 0)
    [(played, _)], asked = play(scripts, (0, 0))
    before = ()
    for request in asked[0, 0]:
        assert request.tokens[: len(before)] == before
        before = request.tokens + (7,) * request.params.max_tokens
    (sample,) = played.samples()
    assert sample.tokens == before
    assert all(token == 7 for token, trained in zip(sample.tokens, sample.mask, strict=True) if trained)


def test_members_begin_with_their_groups_prompt_and_read_different_replies():
    scripts = Scripts(preset("shop"), 0)
    _, asked = play(scripts, (0, 0), (0, 1), (1, 0))
    mates, other = (asked[0, 0], asked[0, 1]), asked[1, 0]
    prefix = scripts.script(task=0, slot=0).prefix
    assert mates[0][0].tokens[:prefix] == mates[1][0].tokens[:prefix]
    assert other[0].tokens[:prefix] != mates[0][0].tokens[:prefix]
    assert mates[0][1].tokens[-20:] != mates[1][1].tokens[-20:]


def test_an_episode_that_the_infrastructure_fails_has_no_reward():
    scripts = Scripts(preset("shop").model_copy(update={"failure": 1.0}), 0)
    [(played, _)], _ = play(scripts, (0, 0))
    assert not played.valid


def test_a_group_made_without_playing_is_as_long_as_one_that_was_played():
    scripts = Scripts(preset("house").model_copy(update={"failure": 1.0}), 1)
    group = token_group(scripts, 2, vocabulary=VOCABULARY)
    assert all(isinstance(member.outcome, Valid) for member in group.members)
    assert len({member.reward for member in group.members}) == 2, "there is something to learn"
    for slot, member in enumerate(group.members):
        assert member.lengths == scripts.script(task=2, slot=slot).trained
        assert all(0 <= token < VOCABULARY for segment in member.segments for token in segment.tokens)


def test_a_sliding_window_is_refused():
    with pytest.raises(UsageError, match="window"):
        require_appending(preset("gui"))
