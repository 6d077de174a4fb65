"""A rank that leaves the rollout ends its turns; everybody goes on elsewhere, with the KV that is there."""

import asyncio

import pytest

from fakes.two_ranks import member, played
from springtide.core.version import PolicyVersion


@pytest.mark.parametrize("residency", [True, False])
@pytest.mark.parametrize(
    ("settings", "kept"),
    [({}, 150), ({"evicts": "cold"}, 0), ({"host": 100}, 0), ({"host": 150}, 150)],
)
def test_a_paused_episode_takes_its_kv_along_where_host_memory_has_room(settings, kept, residency):
    async def main(run):
        await run.start(2)
        await run.turn(1, 0, context=100)
        assert run.engines[1].place(member(1)) == "hot"
        assert run.dispatch.roll_out_on([0]) == (1,)
        await run.dispatch.drained([1])
        assert run.engines[1].stats().hot_tokens == 0
        await run.turn(1, 1, context=160, reusable=150)
        return run.engines[0].stats(), run.dispatch.stats

    receiver, both = played(main, residency=residency, **settings)
    assert (receiver.reused, receiver.reprefilled) == (kept, 150 - kept)
    assert receiver.reloads == (kept > 0)
    assert both.prefilled == 110


def test_a_running_turn_ends_where_it_runs_and_one_that_waits_moves_on():
    async def main(run):
        await run.start(4)
        turns = [run.turn(group, 0, context=100) for group in range(4)]
        await run.clock.sleep(1.0)
        leaving = run.dispatch.roll_out_on([0])
        drained = asyncio.ensure_future(run.dispatch.drained(leaving))
        await asyncio.wait([drained, *turns], return_when=asyncio.FIRST_COMPLETED)
        ended = [turn.done() for turn in turns]
        await drained
        at = run.clock.now()
        await asyncio.gather(*turns)
        return ended, at, [engine.stats().decoded for engine in run.engines]

    ended, at, decoded = played(main)
    assert ended.count(True) == 2, "one on each rank"
    assert at < 6.0, "which is before the others have been served"
    assert decoded == [150, 50]


def test_kv_that_is_on_its_way_while_all_kv_is_dropped_is_dropped_too():
    async def main(run):
        await run.start(2)
        await run.turn(1, 0, context=100)
        other = run.turn(0, 0, context=100)
        await run.clock.sleep(0.1)
        run.dispatch.roll_out_on([0])
        await run.dispatch.drained([1])
        assert not run.engines[0].stats().warm_tokens, "rank 0 is still at its visit"
        await run.dispatch.load(expected=PolicyVersion(1, "v"), weights="v", kv="recompute")
        await asyncio.gather(other, run.turn(1, 1, context=160, reusable=150))
        return run.engines[0].stats()

    done = played(main)
    assert (done.reloads, done.reused) == (0, 0)


def test_a_rank_that_is_called_back_is_not_waited_for():
    async def main(run):
        await run.start(2)
        turn = run.turn(1, 0, context=100)
        await run.clock.sleep(1.0)
        leaving = run.dispatch.roll_out_on(1)
        run.dispatch.roll_out_on(2)
        await run.dispatch.drained(leaving)
        assert not turn.done()
        await turn
        return run.engines[1].stats().decoded

    assert played(main) == 50


def test_an_episode_that_ends_on_its_way_leaves_nothing_behind():
    async def main(run):
        await run.start(2)
        await run.turn(1, 0, context=100)
        run.dispatch.roll_out_on(1)
        await asyncio.sleep(0)
        run.dispatch.close(member(1))
        await run.dispatch.drained([1])
        run.dispatch.close(member(0))
        await run.clock.sleep(1.0)
        return [engine.stats() for engine in run.engines]

    assert all((each.hot_tokens, each.warm_tokens) == (0, 0) for each in played(main))


def test_a_turn_that_is_cancelled_while_its_episode_moves_is_not_served():
    async def main(run):
        await run.start(4)
        turns = [run.turn(group, 0, context=100) for group in range(4)]
        await run.clock.sleep(0.5)
        run.dispatch.roll_out_on([0])
        turns[3].cancel()
        await asyncio.gather(*turns, return_exceptions=True)
        return sum(engine.stats().decoded for engine in run.engines)

    assert played(main) == 150
