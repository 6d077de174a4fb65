"""A rank that is told which KV to keep, and one that must not be."""

import asyncio

import pytest

from fakes.engine import FakeEngine
from springtide.core.member import Member, Purpose
from springtide.core.sampling import SampleRequest, SamplingParams
from springtide.core.version import PolicyVersion
from springtide.ports.engine import EngineCapabilities
from springtide.runtime.clock import LoopClock
from springtide.runtime.dispatch import Dispatch
from springtide.scheduling.priority import REST, Precedence
from springtide.scheduling.residency import Residency
from springtide.scheduling.retention import Recency
from springtide.simulation.executor import InlineExecutor
from springtide.simulation.virtual_loop import run_virtual
from springtide.telemetry.ledger import Ledger


class Small(FakeEngine):
    """Room for two turns; remembers what it was asked for."""

    capabilities = EngineCapabilities(owns_residency=True, capacity_tokens=1000, max_batch=2, max_context=1000)

    def __init__(self):
        super().__init__()
        self.submitted = []
        self.demoted = []

    def submit(self, requests):
        self.submitted.append([request.member.group for request in requests])
        super().submit(requests)

    def demote(self, member, to):
        self.demoted.append((member.group, to))


class Remote(Small):
    capabilities = EngineCapabilities(owns_residency=False, capacity_tokens=1000, max_batch=2, max_context=1000)


def members(count):
    return [Member(Purpose.TRAIN, group, 0) for group in reversed(range(count))]


class Newest:
    """The newest group first; a group in `urgent` before all others."""

    patience = 1000.0

    def __init__(self):
        self.urgent = set()

    def of(self, member):
        return Precedence(REST, 0, -1000.0 if member.group in self.urgent else -member.group, 0.0)

    def sampled(self, member, tokens):
        self.last = member.group, tokens


def played(engine, *, lockstep=False, count=4, priority=None, meanwhile=lambda dispatch: None):
    """So many episodes of one turn, all ready at the same time, newest group first."""

    async def main():
        clock = LoopClock()
        ledger = Ledger(clock.now)
        dispatch = Dispatch(
            engines=[engine],
            executor=InlineExecutor(lambda lane, name: 1.0, ledger),
            clock=clock,
            ledger=ledger,
            lockstep=lockstep,
            residency=lambda engine: Residency(Recency(), capacity=1000, host=0, max_batch=2, decode_steps=8),
            priority=priority,
        )
        await dispatch.load(expected=PolicyVersion(0, "w"), weights="w", kv="keep")
        driver = asyncio.ensure_future(dispatch.run())
        for member in members(count):
            dispatch.open(member)

        async def turn(member):
            request = SampleRequest(member=member, turn=0, tokens=(1, 2), params=SamplingParams(max_tokens=8))
            await dispatch.sample(request)
            meanwhile(dispatch)
            dispatch.close(member)

        await asyncio.gather(*(turn(member) for member in members(count)))
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)

    run_virtual(main)
    return engine.submitted


def test_the_oldest_groups_go_first_and_nobody_is_submitted_before_there_is_room():
    submitted = played(Small(), count=6)
    assert submitted[0] == [0, 1]
    assert [group for visit in submitted for group in visit] == [0, 1, 2, 3, 4, 5]
    assert all(len(visit) <= 2 for visit in submitted)


@pytest.mark.parametrize(("engine", "lockstep"), [(Small, True), (Remote, False)])
def test_a_lockstep_batch_and_an_engine_that_decides_by_itself_are_left_alone(engine, lockstep):
    assert played(engine(), lockstep=lockstep) == [[0, 1, 2, 3]]


@pytest.mark.parametrize(("engine", "expected"), [(Remote, [[3, 2, 1, 0]]), (Small, [[3, 2], [1], [0]])])
def test_turns_are_submitted_in_the_order_of_the_priority_also_to_an_engine_that_decides_by_itself(engine, expected):
    rule = Newest()
    submitted = played(engine(), priority=rule)
    assert [visit for visit in submitted if visit] == expected
    assert rule.last[1] > 0


def test_a_turn_that_waits_outside_of_the_engine_can_still_be_put_before_others():
    rule = Newest()

    def hurry(dispatch):
        rule.urgent.add(0)
        dispatch.reorder([0])

    submitted = played(Small(), count=6, priority=rule, meanwhile=hurry)
    assert [group for visit in submitted for group in visit] == [5, 4, 3, 0, 2, 1], (
        "3 entered before anybody heard of it"
    )
