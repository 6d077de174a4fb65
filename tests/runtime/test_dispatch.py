"""The one Sampler on real threads: the engine is touched from its lane only."""

import asyncio
import threading

from fakes.engine import FakeEngine
from springtide.core.member import Member, Purpose
from springtide.core.sampling import SampleRequest, SamplingParams
from springtide.core.version import PolicyVersion
from springtide.ports.engine import EngineStats
from springtide.runtime.clock import LoopClock
from springtide.runtime.dispatch import Dispatch
from springtide.runtime.executor import ThreadExecutor
from springtide.telemetry.ledger import Ledger


class Watched(FakeEngine):
    """Remembers who called what."""

    def __init__(self):
        super().__init__()
        self.calls = set()
        self.made = True

    def __getattribute__(self, name):
        made = "made" in object.__getattribute__(self, "__dict__")
        if made and name in ("submit", "step", "has_work", "cancel", "release", "load_weights", "stats"):
            object.__getattribute__(self, "calls").add((name, threading.current_thread().name))
        return object.__getattribute__(self, name)


def test_the_engine_is_only_touched_on_its_lane_and_its_numbers_are_read_beside_it():
    async def main():
        clock = LoopClock()
        ledger = Ledger(clock.now)
        executor = ThreadExecutor(ledger)
        engine = Watched()
        dispatch = Dispatch(engines=[engine], executor=executor, clock=clock, ledger=ledger, lockstep=False)
        await dispatch.load(expected=PolicyVersion(0, "w"), weights="w", kv="keep")
        driver = asyncio.ensure_future(dispatch.run())
        member = Member(Purpose.TRAIN, 0, 0)
        dispatch.open(member)
        request = SampleRequest(member=member, turn=0, tokens=(1, 2), params=SamplingParams(max_tokens=8))
        assert (await dispatch.sample(request)).versions[0] == 0
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
        await executor.close()
        return engine.calls

    calls = asyncio.run(main())
    assert {name for name, _ in calls} >= {"load_weights", "submit", "step", "stats"}
    (thread,) = {thread for _, thread in calls}
    assert thread.startswith("lane-engine")


class Used(FakeEngine):
    """Has computed before anybody played: a calibration did."""

    def __init__(self):
        super().__init__()
        self.prefilled = 1000

    def submit(self, requests):
        super().submit(requests)
        self.prefilled += sum(len(request.tokens) for request in requests)

    def stats(self):
        return EngineStats(running=len(self.running), prefilled=self.prefilled)


def test_what_an_engine_did_before_the_run_is_not_the_runs():
    async def main():
        clock = LoopClock()
        ledger = Ledger(clock.now)
        executor = ThreadExecutor(ledger)
        dispatch = Dispatch(engines=[Used()], executor=executor, clock=clock, ledger=ledger, lockstep=False)
        await dispatch.load(expected=PolicyVersion(0, "w"), weights="w", kv="keep")
        driver = asyncio.ensure_future(dispatch.run())
        member = Member(Purpose.TRAIN, 0, 0)
        dispatch.open(member)
        await dispatch.sample(SampleRequest(member=member, turn=0, tokens=(1, 2), params=SamplingParams(max_tokens=8)))
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
        await executor.close()
        return dispatch.stats.prefilled, dispatch.readiness.snapshot(clock.now()).appended

    assert asyncio.run(main()) == (2, 2.0)


def test_where_a_rank_rolls_out_no_longer_the_next_turn_is_played_elsewhere():
    async def main():
        clock = LoopClock()
        ledger = Ledger(clock.now)
        executor = ThreadExecutor(ledger)
        engines = [Used(), Used()]
        dispatch = Dispatch(engines=engines, executor=executor, clock=clock, ledger=ledger, lockstep=False)
        await dispatch.load(expected=PolicyVersion(0, "w"), weights="w", kv="keep")
        driver = asyncio.ensure_future(dispatch.run())
        members = [Member(Purpose.TRAIN, group, 0) for group in range(2)]
        for member in members:
            dispatch.open(member)

        async def play(turn):
            params = SamplingParams(max_tokens=8)
            requests = [SampleRequest(member=who, turn=turn, tokens=(1, 2), params=params) for who in members]
            await asyncio.gather(*(dispatch.sample(request) for request in requests))
            return [engine.prefilled - 1000 for engine in engines], [len(engine.sessions) for engine in engines]

        before = await play(0)
        dispatch.roll_out_on(1)
        after = await play(1)
        for member in members:
            dispatch.close(member)
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
        await executor.close()
        return before, after

    before, after = asyncio.run(main())
    assert before == ([2, 2], [1, 1])
    assert after[0] == [6, 2]
    assert after[1][0] == 2
