import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.scheduling.costs import ServiceCosts
from springtide.scheduling.elasticity import COOLDOWN, DOUBT, Demand, Elasticity, Rates
from springtide.scheduling.readiness import Readiness

NOTHING = dict.fromkeys(ServiceCosts.model_fields, 0.0)
COSTS = ServiceCosts(
    **(NOTHING | {"decode_base": 0.01, "decode_sequence": 0.001, "forward_token": 0.001, "backward_token": 0.002})
)
RATES = Rates(costs=lambda: COSTS, kv_tokens=10_000, max_batch=20)


def seen(**changes):
    plain = {"environment": 0.0, "context": 1000.0, "output": 50.0, "appended": 0.0, "turns": 4.0, "trained": 1000.0}
    return Readiness(
        **(plain | {"longest": None, "interval": None, "backlog": 0, "oldest": 0.0, "open": 0, "ended": 99} | changes)
    )


def demand(**changes):
    return Demand(**({"ranks": 8, "batch": 100, "live": 10_000, "reference": False} | changes))


def test_a_rank_makes_what_its_batch_makes_in_the_time_of_a_turn():
    # Ten fit; a turn of 50 tokens takes 50 x 20 ms = 1 s; an episode has four.
    assert RATES.rollout(seen(), 1, live=10_000) == pytest.approx(10 / 4)
    assert RATES.rollout(seen(), 3, live=10_000) == pytest.approx(3 * 10 / 4)


def test_what_the_staleness_bound_lets_in_flight_is_shared_by_the_ranks():
    # Five each, without pauses: a step takes 15 ms, a turn 0.75 s.
    assert RATES.rollout(seen(), 2, live=10) == pytest.approx(2 * 5 / (0.75 * 4))
    with_pauses = RATES.rollout(seen(environment=3.0), 1, live=10)
    # Of ten, b are on the device: b = 10 t / (t + 3) with t = 50 (0.01 + 0.001 b).
    assert with_pauses == pytest.approx(10 / ((3 + 50 * (0.01 + 0.001 * 1.6596)) * 4), rel=1e-3)


def test_training_goes_by_tokens():
    assert RATES.training(seen(), 2, reference=False) == pytest.approx(2 / (0.003 * 1000))


def test_nothing_moves_before_enough_is_known():
    assert Elasticity(RATES).split(seen(turns=None), 4, demand()) == 4
    assert Elasticity(RATES).split(seen(ended=3), 4, demand()) == 4


def test_ranks_that_take_turns_do_one_after_the_other():
    costs = COSTS.model_copy(update={"optimizer": 0.5, "publish": 1.0, "swap": 0.25})
    rates = Rates(costs=lambda: costs, kv_tokens=10_000, max_batch=20)
    # Eight make a hundred in 5 s and train on them in 37.5 s; what the model swaps with goes out and comes back.
    alone = rates.throughput(seen(), 8, demand(turns=True))
    assert alone == pytest.approx((1 - DOUBT) * 100 / (5 + 37.5 + 0.5 + 1.0 + 2 * 0.25))
    scored = rates.throughput(seen(), 8, demand(reference=True))
    assert scored == pytest.approx((1 - DOUBT) * 100 / (5 + 37.5 + 0.5 + 1.0 + 4 * 0.25))


def test_taking_turns_all_wait_for_the_longest_episode():
    # Of 200 episodes each of eight ranks has 25, of which b = 25 t / (t + 2) are on the device, for t = 50 (0.01 +
    # 0.001 b): b = 7.66 and t = 0.883 s. Forty turns take 115.3 s; the bound allows an episode two steps.
    known, wanted = seen(environment=2.0, longest=40.0), demand(live=200, turns=True)
    assert RATES.slowest(known, 8, 200) == pytest.approx(115.31, rel=1e-3)
    assert RATES.throughput(known, 8, wanted) == pytest.approx((1 - DOUBT) * 100 / (57.66 + 37.5), rel=1e-3)
    # Four turns take less than the batch does.
    made = 100 * 4 / (8 * 7.656 / 0.8828)
    short = RATES.throughput(seen(environment=2.0, longest=4.0), 8, wanted)
    assert short == pytest.approx((1 - DOUBT) * 100 / (made + 37.5), rel=1e-3)


def test_ranks_take_turns_where_no_split_is_even():
    # Two ranks: one makes 2.5 per second and trains on 5. Both make a hundred in 20 s and train on them in 10.
    two, uneven = demand(ranks=2, turns=True), seen(trained=200 / 3)
    assert RATES.throughput(uneven, 1, two) == pytest.approx(2.5)
    assert Elasticity(RATES).split(uneven, 1, two) == 2
    assert Elasticity(RATES).split(uneven, 1, demand(ranks=2)) == 1, "who may not take turns does not"
    # Where one trains on as many as the other makes, both in turns are no faster.
    assert Elasticity(RATES).split(seen(trained=400 / 3), 2, two) == 1


def test_one_rank_can_only_take_turns():
    assert Elasticity(RATES).split(seen(), 1, demand(ranks=1, turns=True)) == 1


def best_split():
    return max(range(1, 8), key=lambda ranks: min(ranks * 2.5, (8 - ranks) / 3))


def moving(role_switch):
    return Elasticity(
        Rates(costs=lambda: COSTS.model_copy(update={"role_switch": role_switch}), kv_tokens=10_000, max_batch=20)
    )


def test_a_gain_that_pays_within_a_step_is_taken_at_once_and_then_left_to_show():
    elastic = moving(role_switch=5.0)
    assert best_split() == 1
    assert elastic.split(seen(), 6, demand()) == 1
    # Now one rank would do too little: with cheap training, two are better.
    cheap = seen(trained=100.0)
    for _ in range(COOLDOWN):
        assert elastic.split(cheap, 1, demand()) == 1
    assert elastic.split(cheap, 1, demand()) > 1


def test_further_in_the_same_direction_needs_no_rest():
    elastic = moving(role_switch=5.0)
    assert elastic.split(seen(trained=400.0), 6, demand()) == 2
    assert elastic.split(seen(), 2, demand()) == 1


# An episode trains for 1.14 s of a rank: 4.4 per second with three that roll out, 22.8 s for a step of a hundred. With
# two it is 5.0, and 20 s.
SLOWER = seen(trained=380.0)


def test_a_gain_that_takes_longer_to_pay_has_to_be_seen_twice():
    elastic = moving(role_switch=3.0)
    assert elastic.split(SLOWER, 3, demand()) == 3
    assert elastic.split(SLOWER, 3, demand()) == 2
    assert moving(role_switch=2.5).split(SLOWER, 3, demand()) == 2
    assert moving(role_switch=2.5).split(SLOWER, 3, demand(batch=80)) == 3, "shorter steps save less"


def test_a_tiny_gain_is_never_taken():
    elastic, nearly = moving(role_switch=0.0), seen(trained=343.3)  # 4.85 per second with three, 5.0 with two.
    assert [elastic.split(nearly, 3, demand()) for _ in range(5)] == [3] * 5


@given(st.floats(0, 60), st.floats(100, 9000), st.floats(1, 500), st.floats(10, 50_000), st.integers(2, 64), st.data())
def test_a_move_never_predicts_less(environment, context, output, trained, ranks, data):
    known = seen(environment=environment, context=context, output=output, trained=trained)
    wanted = demand(ranks=ranks)
    rollout = data.draw(st.integers(1, ranks - 1))
    elastic = Elasticity(RATES)
    for _ in range(4):
        moved = elastic.split(known, rollout, wanted)
        assert 1 <= moved <= ranks - 1
        assert RATES.throughput(known, moved, wanted) >= RATES.throughput(known, rollout, wanted)
        rollout = moved
