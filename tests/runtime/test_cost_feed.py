"""Finished work reaches the costs, with what it consisted of."""

import asyncio
from functools import partial
from types import SimpleNamespace as Namespace

import pytest

from springtide.core.version import PolicyVersion
from springtide.ports.engine import EngineStats
from springtide.ports.trainer import Passes, StepReport, StepWork
from springtide.runtime import executor as executor_module
from springtide.runtime.clock import LoopClock
from springtide.runtime.cost_feed import CostFeed
from springtide.runtime.executor import ThreadExecutor
from springtide.simulation.contention import Contention, CoreSharing
from springtide.simulation.executor import InlineExecutor
from springtide.simulation.virtual_loop import run_virtual
from springtide.telemetry.ledger import Ledger


class Told:
    """In the place of a fold."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


def test_a_visit_is_what_totals_have_grown_by_on_its_own_lane():
    told, stats = Told(), {"engine-0": EngineStats(steps=5, decoded=20, running=3), "engine-1": EngineStats(steps=7)}
    feed = CostFeed(told, stats.__getitem__)
    feed.ended("engine-0", "generate", 1.0)
    feed.ended("engine-1", "generate", 2.0)
    stats["engine-0"] = EngineStats(steps=8, decoded=29, running=2, refreshed=4)
    feed.ended("engine-0", "refresh", 3.0)
    assert told.calls == [
        ("visited", EngineStats(steps=5, decoded=20, running=3), 1.0),
        ("visited", EngineStats(steps=7), 2.0),
        ("visited", EngineStats(steps=3, decoded=9, running=2, refreshed=4), 3.0),
    ]


def test_a_publication_is_the_copy_and_what_a_rank_takes_to_take_it():
    told = Told()
    feed = CostFeed(told, {}.__getitem__)
    feed.ended("trainer", "publish", 0.5)
    feed.ended("engine-0", "load_weights", 1.0)
    feed.ended("engine-1", "load_weights", 2.0)
    feed.ended("engine-1", "role_switch", 7.0)
    for lane, name in (("trainer", "train"), ("journal", "append"), ("engine-0", "probe")):
        feed.ended(lane, name, 100.0)
    assert told.calls == [("published", 1.5), ("published", 2.5), ("switched", 7.0)]


def test_steps_come_with_what_the_trainer_says_of_them():
    told, work = Told(), StepWork(actor=Passes(tokens=9, seconds=2.0), updates=1, update_seconds=0.5)
    feed = CostFeed(told, {}.__getitem__)
    report = StepReport(step=1, version=PolicyVersion(1, "d"), trained_tokens=9, work=work)
    feed.trained(report, ())
    feed.recovered(report, ())
    assert told.calls == [("trained", work), ("trained", work)]


def test_on_the_virtual_clock_work_takes_what_was_slept():
    ended = []

    async def main():
        clock = LoopClock()
        sharing = CoreSharing(Contention(rollout=2.0, training=3.0), clock.now)
        executor = InlineExecutor(lambda lane, name: {"a": 1.0, "b": 0.5}, Ledger(clock.now), sharing=sharing)
        executor.subscribe(lambda *piece: ended.append((*piece, clock.now())))
        await executor.run("engine", lambda: None, name="generate")
        await asyncio.gather(
            executor.run("engine", lambda: None, name="generate"), executor.run("trainer", lambda: None, name="train")
        )

    run_virtual(main)
    assert ended[0] == ("engine", "generate", 1.5, 1.5)
    assert ended[1] == ("engine", "generate", 3.0, 4.5), "twice as long, as the trainer computes too"


def test_on_the_walls_clock_waiting_for_the_lane_is_no_work(monkeypatch):
    clock, ended = Namespace(time=0.0), []
    monkeypatch.setattr(executor_module, "time", Namespace(perf_counter=lambda: clock.time))

    def work(seconds):
        clock.time += seconds

    async def main():
        executor = ThreadExecutor(Ledger(LoopClock().now))
        executor.subscribe(lambda *piece: ended.append(piece))
        works = (("long", 5.0), ("short", 1.0))
        await asyncio.gather(*(executor.run("engine", partial(work, took), name=name) for name, took in works))
        await executor.close()

    asyncio.run(main())
    assert ended == [("engine", "long", 5.0), ("engine", "short", 1.0)]


def test_work_that_fails_has_taken_nothing():
    ended = []

    async def main():
        executor = ThreadExecutor(Ledger(LoopClock().now))
        executor.subscribe(lambda *piece: ended.append(piece))
        with pytest.raises(ZeroDivisionError):
            await executor.run("engine", lambda: 1 // 0, name="generate")
        await executor.close()

    asyncio.run(main())
    assert ended == []
