import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.scheduling.admission import ConcurrencyLaw
from springtide.scheduling.costs import ServiceCosts
from springtide.scheduling.readiness import Readiness

NOTHING = dict.fromkeys(ServiceCosts.model_fields, 0.0)
COSTS = ServiceCosts(**(NOTHING | {"decode_base": 0.01, "decode_sequence": 0.001}))


def law(**changes):
    plain = {
        "costs": lambda: COSTS,
        "kv_tokens": 10_000,
        "host_tokens": 90_000,
        "max_batch": 20,
        "spare": 0.0,
        "reserve": 0.0,
    }
    return ConcurrencyLaw(**(plain | changes))


def seen(**changes):
    plain = {"environment": 0.0, "context": 1000.0, "output": 50.0, "appended": 0.0, "turns": None, "longest": None}
    return Readiness(
        **(plain | {"trained": None, "interval": None, "backlog": 0, "oldest": 0.0, "open": 0, "ended": 99} | changes)
    )


def test_without_pauses_a_batch_is_enough():
    assert law().limit(seen()) == 10, "10,000 tokens hold ten contexts of 1,000"
    assert law(max_batch=4).limit(seen()) == 4


def test_pauses_are_filled_by_others():
    # A step of ten sequences takes 20 ms, so a turn of 50 tokens takes 1 s, and three times as long outside.
    assert law().turn_seconds(seen()) == pytest.approx(1.0)
    assert law().limit(seen(environment=3.0)) == 40


def test_what_the_others_append_takes_time_too():
    costs = COSTS.model_copy(update={"prefill_token": 0.001})
    assert law(costs=lambda: costs).turn_seconds(seen(appended=100.0)) == pytest.approx(1.0 + 10 * 0.1)


DEAR = COSTS.model_copy(update={"prefill_base": 1e9})


def test_no_more_than_device_and_host_hold_where_lost_kv_is_dear():
    dear = {"costs": lambda: DEAR}
    assert law(**dear).limit(seen(environment=1e6)) == 100
    assert law(**dear, host_tokens=0).limit(seen(environment=1e6)) == 10
    assert law(**dear, reserve=0.2).limit(seen(environment=1e6)) == 80
    assert law(**dear).limit(seen(environment=1e6, ended=3)) == 50, "young episodes will grow"
    assert law(**dear, padding=2.0).limit(seen(environment=1e6)) == 95, "the device holds five"


def test_more_than_fits_as_far_as_the_device_has_time_to_compute_them_again():
    # Ten fit. A turn takes 1 s in a batch of ten, 19 s outside; to get lost KV again takes 0.4 s. Of 40 episodes three
    # in four find theirs lost: 0.1 + 0.75 * 0.4 s of the device for each turn, of which 40 / 20 s come back a second.
    costs = COSTS.model_copy(update={"prefill_token": 0.0004})
    limit = law(costs=lambda: costs, host_tokens=0).limit(seen(environment=19.0))
    assert limit == pytest.approx((20 + 10 * 0.4) / (0.1 + 0.4), abs=0.5)
    busy = 0.1 + (1 - 10 / limit) * 0.4
    assert limit / 20 == pytest.approx(1 / busy, rel=0.05), "as many turns come back as the device has time for"


def test_where_all_fit_what_recomputing_takes_does_not_count():
    assert law(costs=lambda: DEAR).limit(seen(environment=3.0)) == law().limit(seen(environment=3.0)) == 40


def test_before_the_first_turns_nothing_is_said():
    for name in ("context", "output", "appended"):
        assert law().limit(seen(**{name: None})) is None


@given(st.floats(0, 100), st.floats(1, 2e5), st.floats(1, 1e4), st.floats(0, 1e4))
def test_there_is_always_somebody_and_longer_pauses_never_mean_fewer(environment, context, output, appended):
    known = seen(environment=environment, context=context, output=output, appended=appended)
    longer = msgspec.structs.replace(known, environment=2 * environment)
    assert 1 <= law().limit(known) <= law().limit(longer)
