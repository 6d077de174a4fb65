"""What the retention benchmark replays is the same however it is scheduled, and is what a real policy would see."""

from itertools import pairwise

from retention_real import workload
from retention_support.replay import Replayer
from springtide.core.member import Member, Purpose
from springtide.core.sampling import Sampled, SampleStop
from springtide.runtime.clock import LoopClock
from springtide.simulation.script import Scripts
from springtide.simulation.stand_ins import Nothing, Tasks
from springtide.simulation.virtual_loop import run_virtual


class Sampler:
    """Says token 7 for as long as it may. `requests` is what it was asked."""

    def __init__(self):
        self.requests = []

    async def sample(self, request):
        self.requests.append(request)
        count = request.params.max_tokens
        return Sampled(tokens=(7,) * count, logprobs=(-1.0,) * count, versions=(0,) * count, stop=SampleStop.LENGTH)


class Closing(Nothing):
    async def close(self):
        pass


def played(*slots, task=3):
    """The requests and the trajectory of each slot, and the seconds it took."""
    found = []
    for slot in slots:
        sampler = Sampler()

        async def play(sampler=sampler, slot=slot):
            replayer = Replayer(workload=workload(quick=False), seed=1, sampler=sampler, clock=LoopClock())
            asked = Tasks().task(purpose="train", index=task)
            return await replayer.play(Member(Purpose.TRAIN, 9, slot), asked, Closing(), temperature=1.0)

        trajectory, loop = run_virtual(play)
        found.append((sampler.requests, trajectory, loop.time()))
    return found


def test_contexts_outputs_and_latencies_are_those_of_the_script():
    (requests, trajectory, seconds), *_ = played(2)
    script = Scripts(workload(quick=False), 1).script(task=3, slot=2)
    assert [(request.length, request.params.max_tokens) for request in requests] == [
        (turn.context, turn.output) for turn in script.turns
    ]
    assert trajectory.trained_tokens == script.sampled
    assert abs(seconds - script.reset - sum(turn.latency for turn in script.turns)) < 1e-6


def test_each_turn_presents_what_the_one_before_left():
    (requests, *_), *_ = played(0)
    for before, after in pairwise(requests):
        said = (7,) * before.params.max_tokens
        assert after.tokens[: before.length + len(said)] == before.tokens + said


def test_a_group_shares_its_prompt_and_nothing_else():
    (first, one, _), (second, other, _) = played(0, 1)
    prompt = Scripts(workload(quick=False), 1).script(task=3, slot=0).prefix
    assert first[0].tokens == second[0].tokens
    assert len(first[0].tokens) == prompt
    assert first[-1].tokens != second[-1].tokens
    assert one.reward != other.reward, "every sampled token is trained on"
