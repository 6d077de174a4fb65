import asyncio

import pytest

from springtide.simulation.contention import Contention, CoreSharing
from springtide.simulation.executor import InlineExecutor
from springtide.simulation.virtual_loop import run_virtual
from springtide.telemetry.ledger import Ledger


def play(*pieces):
    """Seconds that each (lane, begin, seconds) takes beside the others: rollout twice as long, training 1.5 times."""

    async def main():
        now = asyncio.get_running_loop().time
        sharing = CoreSharing(Contention(rollout=2.0, training=1.5), now)

        async def spend(lane, begin, seconds):
            await asyncio.sleep(begin)
            return await sharing.spend(lane, seconds)

        return await asyncio.gather(*(spend(*piece) for piece in pieces))

    return run_virtual(main)[0]


def test_alone_nothing_takes_longer():
    assert play(("engine", 0.0, 3.0)) == pytest.approx([3.0])
    assert play(("engine", 0.0, 3.0), ("trainer", 3.0, 2.0)) == pytest.approx([3.0, 2.0])


def test_both_take_longer_while_both_compute():
    # For 4 s both: the engine has done 2 of its 2 s, the trainer 4 / 1.5; the rest it does alone.
    assert play(("engine", 0.0, 2.0), ("trainer", 0.0, 6.0)) == pytest.approx([4.0, 4.0 + 6.0 - 4.0 / 1.5])


def test_work_that_has_begun_is_slowed_down_by_what_comes_later():
    # 1 s alone, then 2 of the 2 s that are left take 4; meanwhile the trainer does 4 / 1.5 of its 3 s.
    assert play(("engine", 0.0, 3.0), ("trainer", 1.0, 3.0)) == pytest.approx([5.0, 4.0 + 3.0 - 4.0 / 1.5])


def test_after_years_on_the_clock_work_still_ends():
    years = 1e9
    assert play(("engine", years, 2.0), ("trainer", years + 1e-7, 1.0)) == pytest.approx([3.5 - 0.75, 1.5], abs=1e-5)


def test_ranks_in_rollout_do_not_slow_each_other_down():
    assert play(("engine-0", 0.0, 2.0), ("engine-1", 0.0, 2.0)) == pytest.approx([2.0, 2.0])


def test_the_books_close_when_work_takes_longer_than_it_costs():
    async def main():
        now = asyncio.get_running_loop().time
        ledger = Ledger(now)
        costs = {"engine": {"prefill": 0.5, "decode": 1.5}, "trainer": {"actor": 9.0}}
        sharing = CoreSharing(Contention(rollout=2.0), now)
        executor = InlineExecutor(lambda lane, name: costs[lane], ledger, sharing=sharing)
        await asyncio.gather(*(executor.run(lane, lambda: None, name="work") for lane in costs))
        return ledger.seconds()["engine"]

    books = run_virtual(main)[0]
    assert (books["prefill"], books["decode"]) == pytest.approx((1.0, 3.0))
    assert books["work"] == pytest.approx(0.0, abs=1e-6)
