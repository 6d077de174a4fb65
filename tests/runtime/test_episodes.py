"""Episodes in flight: each started one is posted once, whatever becomes of it, and none is left behind."""

import asyncio

import pytest

from fakes.game import FakeSource
from springtide.core.errors import UsageError
from springtide.core.member import Member, Purpose
from springtide.core.outcome import Valid
from springtide.core.trajectory import Trajectory
from springtide.runtime.clock import LoopClock
from springtide.runtime.episodes import Episodes
from springtide.runtime.evaluator import Evaluator
from springtide.scheduling.commands import StartMember
from springtide.simulation.virtual_loop import run_virtual

START = StartMember(group=3, slot=1, attempt=2, task=0, epoch=0)


class Rooms:
    """Stands for the dispatch: who is open."""

    def __init__(self):
        self.inside = set()

    def open(self, member):
        self.inside.add(member)

    def close(self, member):
        self.inside.discard(member)


class ScriptedPlayer:
    """Plays by calling `script`; `closing` counts the episodes whose environment is not closed yet."""

    def __init__(self, script):
        self.script = script
        self.closing = 0

    async def play(self, member, task, environment, *, temperature):
        self.closing += 1
        try:
            await self.script(member)
        finally:
            await asyncio.sleep(1.0)
            self.closing -= 1
        return Trajectory(member=member, task_id=task.id, segments=(), outcome=Valid(reward=1.0))


async def at_once(member):
    pass


async def for_ever(member):
    await asyncio.sleep(10**6)


async def refused(member):
    raise UsageError("no such thing")


def episodes(script, posted, failures):
    return Episodes(
        player=ScriptedPlayer(script),
        source=FakeSource(),
        dispatch=Rooms(),
        clock=LoopClock(),
        temperature=1.0,
        post=lambda event, trajectory: posted.append((event, trajectory)),
        fail=failures.append,
    )


@pytest.mark.parametrize("head_start", [None, 0.0, 0.5])
def test_a_cancelled_episode_is_posted_once_also_when_it_never_began(head_start):
    async def main():
        posted, failures = [], []
        made = episodes(for_ever, posted, failures)
        made.start(START)
        if head_start is not None:
            await asyncio.sleep(head_start)
        made.cancel(3)
        await asyncio.sleep(10.0)
        assert made.waits() == []
        return posted, failures

    (posted, failures), _ = run_virtual(main)
    ((event, trajectory),) = posted
    assert (event.group, event.slot, event.attempt, event.reward, event.reason) == (3, 1, 2, None, "cancelled")
    assert trajectory is None
    assert failures == []


def test_a_played_episode_is_posted_with_its_trajectory_and_a_bug_stops_the_run():
    async def main(script):
        posted, failures = [], []
        made = episodes(script, posted, failures)
        made.start(START)
        await asyncio.sleep(10.0)
        return posted, failures

    (posted, failures), _ = run_virtual(lambda: main(at_once))
    assert [(event.reward, trajectory.member.slot) for event, trajectory in posted] == [(1.0, 1)]
    (posted, failures), _ = run_virtual(lambda: main(refused))
    assert posted == []
    assert [str(failure) for failure in failures] == ["no such thing"]


def evaluator(player, rooms):
    return Evaluator(
        player=player,
        source=FakeSource(),
        dispatch=rooms,
        temperature=1.0,
        success_reward=1.0,
        concurrent=2,
        max_attempts=1,
    )


def test_an_interrupted_evaluation_waits_until_its_environments_are_closed():
    async def main():
        player = ScriptedPlayer(for_ever)
        work = asyncio.ensure_future(evaluator(player, Rooms()).evaluate(3))
        await asyncio.sleep(5.0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return player.closing

    assert run_virtual(main)[0] == 0


def test_an_evaluation_that_breaks_leaves_no_episode_running():
    async def one_breaks(member):
        if member == Member(Purpose.EVALUATE, 1, 0):
            raise UsageError("no such thing")
        await for_ever(member)

    async def main():
        player = ScriptedPlayer(one_breaks)
        with pytest.raises(UsageError):
            await evaluator(player, Rooms()).evaluate(3)
        return player.closing

    assert run_virtual(main)[0] == 0
