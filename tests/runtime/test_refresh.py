"""A rank that refreshes KV when it has nothing else to do, and one that no longer trusts KV that was kept."""

import asyncio
import logging

import msgspec
import pytest

from fakes.engine import FakeEngine
from springtide.core.member import Member, Purpose
from springtide.core.sampling import SampleRequest, SamplingParams
from springtide.core.version import PolicyVersion
from springtide.ports.engine import StaleKv
from springtide.runtime.clock import LoopClock
from springtide.runtime.dispatch import Dispatch
from springtide.scheduling.divergence import DivergenceBudget
from springtide.scheduling.refresh import Refresh
from springtide.simulation.executor import InlineExecutor
from springtide.simulation.virtual_loop import run_virtual
from springtide.telemetry.ledger import Ledger

COSTS = {"generate": 1.0, "load_weights": 1.0, "refresh": 0.25, "probe": 0.5}


class Timed(FakeEngine):
    """Sessions have `pieces` pieces of KV; says when it did what. Every turn is probed, with `k3` for ten tokens."""

    def __init__(self, *, pieces=4, k3=0.0):
        super().__init__()
        self.pieces, self.k3 = pieces, k3
        self.log = []
        self.left = {}
        self.due = self.probed = 0
        self.found = 0.0
        self.trusted = True

    def note(self, what):
        self.log.append((asyncio.get_running_loop().time(), what))

    def submit(self, requests):
        super().submit(requests)
        for request in requests:
            self.note(f"submit {request.member.group}")

    def step(self, *, max_decode_steps):
        finished = super().step(max_decode_steps=max_decode_steps)
        self.due += len(finished)
        return finished

    def load_weights(self, *, number, weights, kv):
        self.left = dict.fromkeys(self.sessions, self.pieces)
        return super().load_weights(number=number, weights=weights, kv=kv)

    def trust_kv(self, trusted):
        self.trusted = trusted

    def stale(self):
        running = {turn["request"].member for turn in self.running}
        return [
            StaleKv(member=member, tokens=self.pieces, fresh=self.pieces - left, oldest=0)
            for member, left in self.left.items()
            if left and member not in running and member in self.sessions
        ]

    def refresh(self, member, tokens):
        assert not self.running, "a turn runs"
        self.left[member] -= 1
        self.note(f"refresh {member.group}")
        return 1

    def probe(self):
        self.probed += 10 * self.due
        self.found += 10 * self.k3 * self.due
        self.due = 0

    def stats(self):
        return msgspec.structs.replace(
            super().stats(), probed=self.probed, probe_k3=self.found, probes_due=self.due if self.k3 else 0
        )


def rank(scenario, engine, *, lockstep=False, refresh=True, budget=None):
    """Drives one rank through `scenario(dispatch, turn, load)`; the ledger of its lane."""

    async def main():
        clock = LoopClock()
        ledger = Ledger(clock.now)
        dispatch = Dispatch(
            engines=[engine],
            executor=InlineExecutor(lambda lane, name: COSTS[name], ledger),
            clock=clock,
            ledger=ledger,
            lockstep=lockstep,
            refresh=Refresh() if refresh else None,
            budget=budget,
        )

        async def load(number, kv="refresh"):
            await dispatch.load(expected=PolicyVersion(number, "w"), weights="w", kv=kv)

        async def turn(group, number=0):
            member = Member(Purpose.TRAIN, group, 0)
            params = SamplingParams(max_tokens=8)
            await dispatch.sample(SampleRequest(member=member, turn=number, tokens=(1, 2), params=params))

        await load(0)
        driver = asyncio.ensure_future(dispatch.run())
        for group in range(3):
            dispatch.open(Member(Purpose.TRAIN, group, 0))
        await scenario(dispatch, turn, load)
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
        return ledger.seconds()["engine"]

    result, _ = run_virtual(main)
    return result


async def three_turns_then_an_update(turn, load):
    await asyncio.gather(*(turn(group) for group in range(3)))
    await load(1)


def test_paused_sessions_are_refreshed_one_after_the_other_and_the_time_has_a_name():
    engine = Timed()

    async def scenario(dispatch, turn, load):
        await three_turns_then_an_update(turn, load)
        await asyncio.sleep(20)

    seconds = rank(scenario, engine)
    refreshed = [what for _, what in engine.log if what.startswith("refresh")]
    assert refreshed == [f"refresh {group}" for group in range(3) for _ in range(4)]
    # One look at the first version and one at the end find nothing to do.
    assert seconds["refresh"] == pytest.approx(0.25 * (12 + 2))


def test_a_turn_that_becomes_ready_waits_for_one_piece_at_most_and_the_rest_comes_later():
    engine = Timed(pieces=40)
    ready = []

    async def scenario(dispatch, turn, load):
        await three_turns_then_an_update(turn, load)
        await asyncio.sleep(1.6)
        ready.append(asyncio.get_running_loop().time())
        await turn(2, 1)
        await asyncio.sleep(60)

    rank(scenario, engine)
    at = next(time for time, what in engine.log if what == "submit 2" and time >= ready[0])
    assert at - ready[0] <= COSTS["refresh"]
    before = [what for time, what in engine.log if what.startswith("refresh") and time < at]
    after = [what for time, what in engine.log if what.startswith("refresh") and time > at]
    assert 0 < len(before) < 10
    assert len(before) + len(after) == 3 * 40


@pytest.mark.parametrize("options", [{"refresh": False}, {"lockstep": True}])
def test_nothing_is_refreshed_unasked_or_in_lockstep(options):
    engine = Timed()

    async def scenario(dispatch, turn, load):
        await three_turns_then_an_update(turn, load)
        await asyncio.sleep(20)

    assert "refresh" not in rank(scenario, engine, **options)


def test_above_the_budget_kept_kv_is_not_trusted_and_below_it_it_is_again(caplog):
    engine = Timed(k3=5e-3)
    budget = DivergenceBudget(1e-3)
    trusted = []

    async def scenario(dispatch, turn, load):
        for number in range(200):
            if number == 100:
                engine.k3 = 1e-5
            await asyncio.gather(*(turn(group, number) for group in range(3)))
            await asyncio.sleep(1)
            trusted.append(engine.trusted)

    with caplog.at_level(logging.WARNING):
        rank(scenario, engine, budget=budget)
    assert [trusted[place] for place in (0, 50, -1)] == [True, False, True]
    first, second = (record.getMessage() for record in caplog.records)
    assert "mean KL of 5.0e-03 per token" in first
    assert "engine.divergence_budget = 0.001" in first
    assert "recomputed" in first
    assert "kept over weight updates again" in second
