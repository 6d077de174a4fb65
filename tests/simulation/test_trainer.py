"""The modelled training ranks: what a step takes, from when work comes, and what of it is left to wait for."""

import asyncio

import pytest

from springtide.core.errors import UsageError
from springtide.core.group import Group
from springtide.core.member import Member, Purpose
from springtide.core.outcome import Ending, Valid
from springtide.scheduling.costs import ServiceCosts
from springtide.scheduling.pipelining import FullBatch
from springtide.simulation.cluster import Cluster
from springtide.simulation.executor import InlineExecutor
from springtide.simulation.pipeline import micro_batches
from springtide.simulation.player import ModelledTrajectory
from springtide.simulation.trainer import ModelledTrainer
from springtide.simulation.virtual_loop import run_virtual
from springtide.telemetry.ledger import Ledger

COSTS = ServiceCosts(
    prefill_base=0.0,
    prefill_token=0.0,
    prefill_attention=0.0,
    decode_base=0.1,
    decode_sequence=0.0,
    decode_context=0.0,
    reload_base=0.0,
    reload_token=0.0,
    reference_token=1.0,
    forward_token=1.0,
    backward_token=2.0,
    optimizer=0.25,
    swap=0.5,
    publish=2.0,
    role_switch=9.0,
)
CLUSTER = Cluster(name="by hand", about="", ranks=4, kv_tokens=100, host_tokens=0, micro_batch_tokens=4, costs=COSTS)


def group(number, *lengths):
    """Of one trajectory per length."""
    members = tuple(
        ModelledTrajectory(
            member=Member(purpose=Purpose.TRAIN, group=number, slot=slot, attempt=1),
            task_id=str(number),
            outcome=Valid(reward=float(slot), ending=Ending.ANSWERED),
            turns=1,
            seconds=0.0,
            counts=((0, length),),
            lengths=(length,),
        )
        for slot, length in enumerate(lengths)
    )
    return Group(id=number, base_version=0, members=members)


class Clock:
    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time


def trainer(pipelining="full", *, ranks=1, reference=True, colocated=False, updates=1):
    clock = Clock()
    made = ModelledTrainer(
        CLUSTER,
        ranks=ranks,
        reference=reference,
        colocated=colocated,
        pipelining=pipelining,
        updates=updates,
        now=clock,
    )
    return made, clock


def stepped(made, clock, number, *groups):
    """What is left to wait for, which then passes."""
    report = made.step(step=number, groups=groups)
    assert report.step == number
    spent = dict(made.spent)
    clock.time += sum(spent.values())
    return spent


def test_the_whole_batch_takes_the_time_of_the_busiest_rank():
    made, clock = trainer(ranks=2)
    # 3 and 2 + 2 tokens; the reference in and out.
    assert stepped(made, clock, 1, group(0, 3, 2), group(1, 2)) == {
        "reference": 4.0,
        "actor": 12.0,
        "swap": 1.0,
        "optimizer": 0.25,
    }
    made, clock = trainer(ranks=2, reference=False, colocated=True)
    assert stepped(made, clock, 1, group(0, 3, 2)) == {"actor": 9.0, "swap": 1.0, "optimizer": 0.25}


def test_ranks_wait_for_the_busiest_at_every_update():
    made, clock = trainer(ranks=2, updates=2)
    # 3 and 1 tokens, then 3 and 1 again, where one update would be 4 and 4; the reference scores them as one batch.
    groups = group(0, 3, 1), group(1, 3, 1)
    spent = stepped(made, clock, 1, *groups)
    assert spent == {"reference": 4.0, "actor": 18.0, "swap": 1.0, "optimizer": 0.5}
    made, clock = trainer("adapter", ranks=2, reference=False, updates=2)
    assert sum(stepped(made, clock, 1, *groups).values()) == 9.0 + 9.0 + 0.5
    made, clock = trainer("adapter", ranks=2, reference=False)
    assert sum(stepped(made, clock, 1, *groups).values()) == 12.0 + 0.25


def test_an_update_begins_when_its_groups_are_there_and_the_one_before_has_ended():
    made, clock = trainer("adapter", reference=False, updates=2)
    first, second, third = group(0, 1), group(1, 1), group(2, 1)
    for late, ready in ((first, 0.0), (second, 1.0), (third, 20.0)):
        made.prepare(step=1, group=late, ready=ready, idle=True)
    clock.time = 20.0
    # The first update is the first group, from 0 to 3. The second trains the second group, then waits for the third.
    assert sum(stepped(made, clock, 1, first, second, third).values()) == 3.0 + 0.5


def test_more_updates_than_groups_are_as_many_as_groups():
    made, clock = trainer(ranks=2, reference=False, updates=9)
    assert stepped(made, clock, 1, group(0, 3), group(1, 2))["actor"] == 3 * 3.0 + 3 * 2.0


def test_what_was_done_before_the_step_was_full_is_taken_out_of_the_waiting():
    made, clock = trainer("swap")
    first, second = group(0, 2), group(1, 1)
    made.prepare(step=1, group=first, ready=1.0, idle=True)
    made.prepare(step=1, group=second, ready=20.0, idle=True)
    clock.time = 20.0
    # The first: swap, 2, swap, 6: from 1 to 10. The second has its reference at hand when it comes, then 1, swap, 3.
    spent = stepped(made, clock, 1, first, second)
    assert sum(spent.values()) == 4.5 + 0.25
    assert spent == {"reference": 3.0, "actor": 9.0, "swap": 2.0, "optimizer": 0.25, "rollout": 4.75 - 14.25}


def test_a_step_begins_no_sooner_than_the_one_before_has_ended_and_its_weights_are_sent():
    made, clock = trainer("adapter")
    one, two = group(0, 1), group(1, 1)
    assert sum(stepped(made, clock, 1, one).values()) == 4.25
    made.prepare(step=2, group=two, ready=1.0, idle=True)
    assert sum(stepped(made, clock, 2, two).values()) == 4.25
    made.publish()
    clock.time += 1.0
    three = group(2, 1)
    made.prepare(step=3, group=three, ready=2.0, idle=True)
    # Sending takes one second more.
    assert sum(stepped(made, clock, 3, three).values()) == 1.0 + 4.25


def test_groups_that_were_never_announced_are_ready_when_the_step_is():
    made, clock = trainer("swap")
    clock.time = 50.0
    assert sum(stepped(made, clock, 1, group(0, 2)).values()) == 0.5 + 2 + 0.5 + 6 + 0.25


def test_all_work_may_be_over_before_the_step_is_called():
    made, clock = trainer("adapter")
    one = group(0, 1)
    made.prepare(step=1, group=one, ready=0.0, idle=True)
    clock.time = 100.0
    assert stepped(made, clock, 1, one) == {
        "reference": 1.0,
        "actor": 3.0,
        "swap": 0.0,
        "optimizer": 0.25,
        "rollout": -4.0,
    }


@pytest.mark.parametrize("pipelining", ["swap", "swap-2", "split-1", "split-2", "ahead", "adapter", "adaptive"])
@pytest.mark.parametrize("reference", [True, False])
def test_every_second_of_a_pipelined_run_is_in_the_ledger_and_none_is_negative(pipelining, reference):
    async def main():
        loop = asyncio.get_running_loop()
        ledger = Ledger(loop.time)
        lane = ledger.lane("trainer")
        lane.wait_for("rollout")
        made = ModelledTrainer(
            CLUSTER, ranks=3, reference=reference, colocated=False, pipelining=pipelining, now=loop.time
        )
        executor = InlineExecutor(lambda lane, name: made.spent, ledger)
        for step in range(1, 6):
            groups = tuple(group(10 * step + number, 3, 2, 5) for number in range(4))
            for one in groups:
                await asyncio.sleep(3.0 * step)
                made.prepare(step=step, group=one, ready=loop.time(), idle=True)
            await executor.run(
                "trainer", lambda step=step, groups=groups: made.step(step=step, groups=groups), name="train"
            )
            lane.wait_for("publication")
            await executor.run("trainer", made.publish, name="publish")
            await asyncio.sleep(COSTS.publish)
            lane.wait_for("rollout")
        return ledger.seconds()["trainer"], loop.time()

    (bins, end), _ = run_virtual(main)
    assert sum(bins.values()) == pytest.approx(end)
    assert all(seconds >= -1e-9 for seconds in bins.values()), bins
    # 5 steps of 4 groups of 10 tokens, on 3 ranks.
    assert bins["actor"] == pytest.approx(5 * 40 * 3 / 3)
    assert bins["reference"] == pytest.approx(5 * 40 / 3 if reference else 0.0)
    assert bins["train"] == pytest.approx(0.0)
    assert bins["optimizer"] == 5 * 0.25


def test_the_adaptive_trainer_leaves_the_full_batch_where_work_trickles_in():
    made, clock = trainer("adaptive", ranks=2)
    for step in range(1, 5):
        groups = [group(10 * step + number, 2, 2) for number in range(6)]
        for one in groups:
            clock.time += 12.0
            made.prepare(step=step, group=one, ready=clock.time, idle=True)
        stepped(made, clock, step, *groups)
    assert made.pipeline.modes[-1] != FullBatch()
    assert len(made.pipeline.modes) == 4


def test_a_mode_that_the_training_ranks_cannot_run_is_refused():
    with pytest.raises(UsageError, match="split-4 is nothing that 3 training ranks can run"):
        trainer("split-4", ranks=3)
    with pytest.raises(UsageError, match="pipelining = swap needs ranks that only train, and all 3 also roll out"):
        trainer("swap", ranks=3, colocated=True)


def test_micro_batches_keep_all_ranks_busy_and_hold_no_more_than_they_may():
    # Two per rank: 9, 8, 3 + 1 and 2 + 2.
    assert micro_batches([9, 8, 3, 2, 2, 1], ranks=2, most=100) == (9, 8, 4, 4)
    # Fewer sequences than ranks.
    assert micro_batches([5], ranks=4, most=100) == (5,)
    # Three would do by their sum, but not as they are: 6 + 6, 6 + 6, 6.
    assert micro_batches([6, 6, 6, 6, 6], ranks=1, most=10) == (6, 6, 6, 6, 6)
    # One sequence is never divided.
    assert micro_batches([20, 3], ranks=1, most=10) == (20, 3)
    assert micro_batches([], ranks=2, most=10) == ()


def test_long_contexts_take_longer_by_what_their_tokens_attend_to():
    costs = COSTS.model_copy(update={"training_attention": 0.01})
    assert costs.training_tokens(101) == pytest.approx(101 + 0.01 * 101 * 50, abs=0.5)
    trainer = ModelledTrainer(
        CLUSTER.model_copy(update={"costs": costs}), ranks=1, reference=False, colocated=False, pipelining="full"
    )
    trainer.step(step=1, groups=(group(0, 101, 1),))
    assert trainer.spent["actor"] == pytest.approx(costs.actor(costs.training_tokens(101) + 1))
