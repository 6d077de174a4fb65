import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.telemetry.ledger import UNATTRIBUTED, LaneLedger, Ledger, SharedWait


class FakeClock:
    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds

    def pass_time(self, seconds):
        self.seconds += seconds


@pytest.fixture
def clock():
    return FakeClock()


def test_each_second_goes_to_the_innermost_bin(clock):
    lane = LaneLedger("engine", clock)
    clock.pass_time(1)
    with lane.bin("decode"):
        clock.pass_time(2)
        with lane.bin("prefill"):
            clock.pass_time(4)
        clock.pass_time(8)
    clock.pass_time(16)
    assert lane.seconds() == {UNATTRIBUTED: 17, "decode": 10, "prefill": 4}


def test_a_declared_wait_takes_the_time_between_pieces_of_work(clock):
    lane = LaneLedger("trainer", clock)
    lane.wait_for("waiting for groups")
    clock.pass_time(3)
    with lane.bin("train step"):
        lane.wait_for("waiting for publication")
        clock.pass_time(5)
    clock.pass_time(7)
    assert lane.seconds() == {
        UNATTRIBUTED: 0,
        "waiting for groups": 3,
        "train step": 5,
        "waiting for publication": 7,
    }


def test_a_bin_ends_with_its_body_also_when_that_raises(clock):
    lane = LaneLedger("engine", clock)

    def fail():
        with lane.bin("decode"):
            clock.pass_time(2)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    clock.pass_time(1)
    assert lane.seconds() == {UNATTRIBUTED: 1, "decode": 2}


@pytest.mark.parametrize("stall", ["environment", "checkpoint", "publication", "journal", "evaluation"])
def test_a_planted_stall_lands_in_its_own_bin(clock, stall):
    lane = LaneLedger("trainer", clock)
    lane.wait_for("waiting for groups")
    for _ in range(3):
        clock.pass_time(0.5)
        with lane.bin("train step"):
            clock.pass_time(1.0)
    with lane.bin(stall):
        clock.pass_time(10.0)
    seconds = lane.seconds()
    assert seconds[stall] == 10.0
    assert seconds["train step"] == 3.0
    assert seconds["waiting for groups"] == 1.5


def test_undeclared_time_shows_as_a_share_of_the_lifetime(clock):
    ledger = Ledger(clock)
    with ledger.lane("engine").bin("decode"):
        clock.pass_time(3)
    clock.pass_time(1)
    assert ledger.unattributed_share() == {"engine": 0.25}


def test_bins_are_reported_by_canonical_name(clock):
    ledger = Ledger(clock)
    with ledger.lane("engine").bin("decode"):
        clock.pass_time(3)
    clock.pass_time(1)
    assert ledger.metrics() == {
        "ledger/engine/decode": 3,
        "ledger/engine/unattributed": 1,
        "ledger/engine/unattributed_share": 0.25,
    }


ACTIONS = st.recursive(
    st.tuples(st.just("pass"), st.integers(0, 9))
    | st.tuples(st.sampled_from(["wait", "change"]), st.sampled_from("xyz"))
    | st.tuples(st.just("share"), st.none()),
    lambda inner: st.tuples(st.sampled_from("abc"), st.lists(inner, max_size=4)),
    max_leaves=20,
)


def test_lanes_that_wait_together_change_together_and_only_while_they_wait(clock):
    shared = SharedWait("publication", clock)
    lanes = [LaneLedger(name, clock) for name in "ab"]
    for lane in lanes:
        lane.wait_for(shared)
    clock.pass_time(1)
    shared.change("environment")
    clock.pass_time(2)
    with lanes[0].bin("decode"):
        clock.pass_time(4)
        shared.change("journal")
        clock.pass_time(8)
    clock.pass_time(16)
    lanes[1].wait_for("dispatch")
    shared.change("nothing")
    clock.pass_time(32)
    spent = [{bin_name: time for bin_name, time in lane.seconds().items() if time} for lane in lanes]
    assert spent[0] == {"publication": 1, "environment": 2, "decode": 12, "journal": 16, "nothing": 32}
    assert spent[1] == {"publication": 1, "environment": 6, "journal": 24, "dispatch": 32}


def test_what_was_booked_as_one_is_split_afterwards(clock):
    lane = LaneLedger("engine", clock)
    with lane.bin("generate"):
        clock.pass_time(5)
    lane.split("generate", {"decode": 3, "recompute": 2})
    assert lane.seconds() == {UNATTRIBUTED: 0, "generate": 0, "decode": 3, "recompute": 2}


@given(st.lists(ACTIONS, max_size=6))
def test_bins_sum_to_the_lifetime_whatever_happens(actions):
    clock = FakeClock()
    lane = LaneLedger("lane", clock)
    shared = SharedWait("shared x", clock)
    start = clock()

    def play(action):
        name, argument = action
        if name == "pass":
            clock.pass_time(argument)
        elif name == "wait":
            lane.wait_for(argument)
        elif name == "share":
            lane.wait_for(shared)
        elif name == "change":
            shared.change(argument)
        else:
            with lane.bin(name):
                for inner in argument:
                    play(inner)

    for action in actions:
        play(action)
    assert sum(lane.seconds().values()) == clock() - start


def test_lanes_may_be_made_and_read_from_several_threads(clock):
    """Each thread works its own lane while another reads all of them: nothing is lost and nothing raises."""
    ledger = Ledger(clock)
    barrier = threading.Barrier(5)
    failures = []

    def work(index):
        barrier.wait()
        for step in range(200):
            with ledger.lane(f"lane {index}-{step}").bin("work"):
                pass

    def read():
        barrier.wait()
        try:
            for _ in range(200):
                ledger.seconds()
                ledger.unattributed_share()
        except RuntimeError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)] + [threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(ledger.seconds()) == 800
