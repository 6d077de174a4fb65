"""Which mode is chosen, and when it is left."""

import random
from statistics import fmean

import pytest

from springtide.core.errors import UsageError
from springtide.scheduling.pipeliner import RECENT, Forecast, Pipeliner, candidates, choose, static
from springtide.scheduling.pipelining import Adapter, Ahead, FullBatch, Split, StageCosts, Swap, Unit, schedule

COSTS = StageCosts(reference=1.0, forward=1.0, backward=2.0, swap=0.5)


def there(count, tokens=1):
    return [Unit(0.0, tokens)] * count


def decided(pipeliner, known, arrivals, *, ranks=4, tokens=(1,), holding=0):
    return pipeliner.decide(known, arrivals, tokens, ranks, COSTS, 0.0, holding=holding)


def test_what_is_to_come_is_expected_at_the_interval():
    assert Forecast(2, 3.0, (5, 4)).units(10.0) == [Unit(13.0, 5), Unit(13.0, 4), Unit(16.0, 5), Unit(16.0, 4)]


def test_what_is_to_come_is_spread_as_it_was_before():
    # Half of the arrivals came in a tenth of the time. Four in 8 s: two by 0.8 s, evenly, the others until the end.
    shaped = Forecast(4, 2.0, (1,), shape=(0.1, 1.0)).units(0.0)
    assert [unit.ready for unit in shaped] == pytest.approx([0.4, 0.8, 4.4, 8.0])


def test_arrivals_that_bunch_make_a_mode_that_is_just_fast_enough_look_worse():
    # The actor of a split takes 3 s a unit, as long as the next takes to come; bunched, they queue there.
    modes = [Split(1), Ahead(1)]
    even, bunched = Forecast(20, 3.0, (1,)), Forecast(20, 3.0, (1,), shape=(0.9, 1.0))
    assert choose(modes, there(1), [even], 2, COSTS, 0.0)[0] == Split(1)
    assert choose(modes, there(1), [bunched], 2, COSTS, 0.0)[0] == Ahead(1)
    both = choose(modes, there(1), [even, bunched], 2, COSTS, 0.0)[1]
    alone = [choose(modes, there(1), [forecast], 2, COSTS, 0.0)[1] for forecast in (even, bunched)]
    assert both == {mode: (alone[0][mode] + alone[1][mode]) / 2 for mode in modes}


def test_the_candidates_are_every_split_and_cycles_up_to_all_of_a_rank():
    assert candidates(6, 2) == (FullBatch(), Swap(1), Swap(2), Swap(4), Split(1), Ahead(1), Ahead(2))
    assert candidates(1, 1) == (FullBatch(), Swap(1), Ahead(1))


def test_the_chosen_mode_ends_first():
    # All is there, and is one full cycle for one rank: nothing beats the batch as a whole.
    assert choose(candidates(4, 1), there(4), [Forecast(0, 1.0, ())], 1, COSTS, 0.0)[0] == FullBatch()
    # Three ranks train 100 units each while the fourth, which has the reference already, scores all: no swaps. Waiting
    # for the first log-probs takes the third of them 2 s.
    heavy = StageCosts(reference=1.0, forward=1.0, backward=2.0, swap=10.0)
    mode, finishes = choose(candidates(300, 4), there(300), [Forecast(0, 1.0, ())], 4, heavy, 0.0, holding=1)
    assert (mode, finishes[mode], finishes[FullBatch()]) == (Split(1), 302.0, 320.0)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("interval", [0.0, 0.5, 2.0, 16.0])
@pytest.mark.parametrize("ready", [1, 8])
def test_when_work_comes_as_expected_no_mode_is_better_in_hindsight(ranks, interval, ready):
    modes = candidates(24, ranks, interval=interval)
    coming = Forecast(24 - ready, interval, (1,))
    mode, _ = choose(modes, there(ready), [coming], ranks, COSTS, 0.0)
    came = there(ready) + coming.units(0.0)
    best = min(schedule(other, came, ranks, COSTS, 0.0).finish for other in modes)
    assert schedule(mode, came, ranks, COSTS, 0.0).finish == best


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("interval", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("ready", [1, 8])
def test_when_work_comes_at_random_it_is_hardly_worse_than_the_best_mode_of_each_step(ranks, interval, ready):
    rng = random.Random(f"{ranks} {interval} {ready}")
    pipeliner, holding, regrets = Pipeliner(), 0, []
    for _ in range(24):
        came = there(ready)
        for _ in range(32 - ready):
            came.append(Unit(came[-1].ready + rng.expovariate(1 / interval), 1))
        pipeliner = decided(pipeliner, came[:ready], 32 - ready, ranks=ranks, holding=holding)
        done = schedule(pipeliner.mode, came, ranks, COSTS, 0.0, holding=holding)
        holding = done.holding
        pipeliner = pipeliner.observe(0.0, [unit.ready for unit in came[ready:]])
        best = min(schedule(mode, came, ranks, COSTS, 0.0).finish for mode in candidates(32, ranks))
        regrets.append(done.finish / best - 1)
    assert fmean(regrets[4:]) < 0.05


def test_starved_ranks_leave_a_mode_at_once():
    pipeliner = Pipeliner(mode=FullBatch(), recent=((4.0, ()),))
    assert decided(pipeliner, there(2), 10).mode != FullBatch()


def test_a_gain_has_to_last_before_a_mode_is_left():
    # Half of the work is there and the rest comes slowly: to wait for it is far from the best.
    once = decided(Pipeliner(mode=FullBatch(), recent=((2.0, ()),)), there(20), 20)
    assert once.mode == FullBatch()
    assert decided(once, there(20), 20).mode != FullBatch()
    # A step in which waiting is right is not the one to change in.
    between = decided(once, there(40), 0, ranks=1)
    assert between.mode == FullBatch()
    assert decided(between, there(20), 20).mode != FullBatch()


def test_what_a_mode_would_have_cost_counts_against_what_it_would_have_saved():
    # When all is there, waiting for nothing saves half a second of 81.5; when half of it comes slowly, it costs more.
    pipeliner = Pipeliner(mode=Ahead(1), recent=((2.0, ()),))
    for _ in range(100):
        pipeliner = decided(pipeliner, there(40), 0, ranks=2)
        assert pipeliner.mode == Ahead(1)
        assert pipeliner.missed
        pipeliner = decided(pipeliner, there(20), 20, ranks=2)
        assert pipeliner.mode == Ahead(1)


def test_a_small_gain_counts_when_it_lasts():
    pipeliner, steps = Pipeliner(mode=Swap(1), recent=((1.0, ()),)), 0
    while pipeliner.mode == Swap(1):
        # One swap more than needed, of about 90 s: 1 %.
        pipeliner, steps = decided(pipeliner, there(44), 0, ranks=2), steps + 1
        assert steps < 100
    assert steps >= 2


def test_arrivals_are_expected_as_they_have_been_lately():
    seen = Pipeliner().observe(10.0, [12.0, 16.0])
    assert seen.recent == ((3.0, (2 / 6, 1.0)),)
    assert seen.observe(0.0, []) == seen
    later = seen
    for _ in range(RECENT):
        later = later.observe(0.0, [5.0])
    assert later.recent == ((5.0, (1.0,)),) * RECENT


def test_without_a_reference_there_is_one_mode():
    costs = StageCosts(reference=0.0, forward=1.0, backward=2.0, swap=0.0)
    assert Pipeliner().decide(there(3), 1, (1,), 2, costs, 0.0).mode == Adapter()


@pytest.mark.parametrize(
    ("setting", "mode"),
    [
        ("full", FullBatch()),
        ("swap", Swap(1)),
        ("swap-4", Swap(4)),
        ("split-2", Split(2)),
        ("ahead", Ahead()),
        ("ahead-3", Ahead(3)),
        ("adapter", Adapter()),
    ],
)
def test_settings_name_modes(setting, mode):
    assert static(setting, 3) == mode


@pytest.mark.parametrize(
    "setting", ["split-4", "split-3", "split-0", "split", "ahead-4", "swap-0", "swap-x", "full-2", "whole", ""]
)
def test_a_setting_that_the_ranks_cannot_run_is_refused(setting):
    with pytest.raises(UsageError, match=f"pipelining = {setting} is nothing that 3 training ranks can run; .*split-M"):
        static(setting, 3)
