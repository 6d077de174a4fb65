"""Ranks that die, hang or come back under a sampler: every turn is answered once, by somebody who lives."""

import asyncio

import pytest

from fakes.two_ranks import member, played
from springtide.core.version import PolicyVersion
from springtide.ports.engine import Finished
from springtide.runtime.train_lane import TrainLane
from springtide.simulation.executor import InlineExecutor
from springtide.simulation.turn import ModelledSample
from springtide.simulation.virtual_loop import run_virtual
from springtide.telemetry.ledger import Ledger


def answer(group, *, turn=0, tokens=50):
    return Finished(member=member(group), turn=turn, sampled=ModelledSample(counts=((7, tokens),)))


def die(run, rank):
    members = run.members = run.members.died(rank)
    run.dispatch.follow(members)
    run.dispatch.lose(rank)


def come_back(run, rank):
    members = run.members = run.members.joined(rank)
    run.dispatch.follow(members)
    run.dispatch.revive(rank, run.restart(rank))


def test_a_turn_of_a_dead_rank_is_asked_for_again_and_the_dead_are_not_heard():
    async def main(run):
        await run.start(2)
        turn = run.turn(1, 0, context=100)
        await run.clock.sleep(1.0)
        die(run, 1)
        run.dispatch._deliver(1, 0, [answer(1)])
        assert not turn.done()
        sampled = await turn
        return sampled.counts, run.engines[0].stats().prefilled, run.ledger.seconds()["engine-1"]

    counts, prefilled, books = played(main)
    assert counts == ((0, 50),), "and not what rank 1 said"
    assert prefilled == 100
    assert books["dead"] > 4.0
    assert books["lost"] == pytest.approx(0.1), "what it was at when it died"


def test_what_a_rank_said_in_an_earlier_life_is_not_heard_in_the_next():
    async def main(run):
        await run.start(2)
        die(run, 1)
        come_back(run, 1)
        await run.dispatch.bring_up(1)
        run.dispatch.roll_out_on([1])
        await run.dispatch.drained([0])
        turn = run.turn(1, 0, context=100)
        await run.clock.sleep(0.5)
        run.dispatch._deliver(1, 0, [answer(1)])
        assert not turn.done()
        run.dispatch._deliver(1, run.members.since[1], [answer(1)])
        return (await turn).counts

    assert played(main) == ((7, 50),)


def test_an_answer_that_comes_twice_is_no_answer_to_the_next_turn():
    async def main(run):
        await run.start(1)
        await run.turn(0, 0, context=100)
        following = run.turn(0, 1, context=160, reusable=150, output=30)
        await asyncio.sleep(0)
        run.dispatch._deliver(0, 0, [answer(0)])
        return (await following).length

    assert played(main) == 30


def test_while_no_rank_rolls_out_everybody_waits_for_one():
    async def main(run):
        await run.start(1)
        await run.turn(0, 0, context=100)
        run.dispatch.roll_out_on([0])
        die(run, 0)
        turn = run.turn(0, 1, context=160, reusable=150)
        run.dispatch.open(member(1))
        other = run.turn(1, 0, context=100)
        await run.clock.sleep(100.0)
        assert not turn.done()
        assert [wait.age for wait in run.dispatch.waits()] == [100.0, 100.0], "which is seen"
        run.dispatch.roll_out_on([1])
        await asyncio.gather(turn, other)
        run.dispatch.close(member(1))
        return run.engines[1].stats().reprefilled, run.dispatch.stats.decoded

    assert played(main) == (150, 150), "its KV is lost, and what the dead rank did still counts"


def test_weights_are_not_waited_for_from_a_rank_that_dies_and_are_there_when_it_is_back():
    async def main(run):
        await run.start(0)
        run.costs["load_weights"] = 10.0
        loading = asyncio.ensure_future(run.dispatch.load(expected=PolicyVersion(3, "v"), weights="v", kv="keep"))
        await run.clock.sleep(1.0)
        die(run, 1)
        assert (await loading).number == 3
        at = run.clock.now()
        come_back(run, 1)
        assert run.engines[1].version == 0
        await run.dispatch.bring_up(1)
        return at, run.engines[1].version

    assert played(main) == (10.0, 3)


@pytest.mark.parametrize("hangs", ["visit", "answer", "weights"])
def test_a_rank_that_owes_an_answer_for_too_long_is_given_up(hangs):
    async def main(run):
        await run.start(2)
        run.dispatch.died = lambda rank, epoch: told.append((rank, epoch, run.clock.now())) or die(run, rank)
        if hangs == "visit":
            step = run.engines[1].step

            def hang(*, max_decode_steps):
                done = step(max_decode_steps=max_decode_steps)
                run.engines[1].meter.spent = {"decode": 1e9}
                return done

            run.engines[1].step = hang
        elif hangs == "answer":
            run.dispatch._ranks[1]._deliver = lambda finished: None
        else:
            run.costs["load_weights"] = 1e9
            loading = run.dispatch.load(expected=PolicyVersion(1, "v"), weights="v", kv="keep")
            task = asyncio.ensure_future(loading)
            await run.clock.sleep(1000.0)
            assert not task.done() or told
            return told
        assert (await run.turn(1, 0, context=100)).length == 50
        return told

    told = []
    found = played(main, deadline=60.0)
    assert found[0] == ({"weights": 0}.get(hangs, 1), 0, pytest.approx(60.0, abs=0.01))


async def _nothing_else():
    """Ranks that only train have nothing to end."""


def test_a_step_that_loses_a_rank_is_done_again_and_ends_once():
    async def main():
        loop = asyncio.get_running_loop()
        ledger = Ledger(loop.time)
        executor = InlineExecutor(lambda lane, name: 10.0, ledger)
        steps, begun = TrainLane(executor, _nothing_else), []
        task = asyncio.ensure_future(steps.run(lambda: begun.append(loop.time()) or len(begun)))
        await asyncio.sleep(4.0)
        steps.hold()
        assert steps.held
        await asyncio.sleep(2.0)
        steps.go_on()
        return await task, begun, loop.time(), ledger.seconds()["trainer"]

    (done, begun, end, books), _ = run_virtual(main)
    assert (done, begun, end) == (2, [0.0, 6.0], 16.0)
    assert books == {"unattributed": 2.0, "lost": 4.0, "train": 10.0}


def test_a_rank_that_is_back_has_to_prove_its_weights_too():
    async def main(run):
        await run.start(2)
        die(run, 1)
        come_back(run, 1)
        run.engines[1].load_weights = lambda *, number, weights, kv: PolicyVersion(number, "something else")
        with pytest.raises(Exception, match="Rank 1, which came back, does not hold version 0"):
            await run.dispatch.bring_up(1)

    played(main)
