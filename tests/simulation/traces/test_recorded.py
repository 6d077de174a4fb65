"""Replaying: trace order first, then other pairings, always by (seed, task, slot, attempt) alone."""

from hypothesis import given
from hypothesis import strategies as st

from springtide.simulation.cluster import cluster
from springtide.simulation.script import Scripts, Turn
from springtide.simulation.simulate import simulate
from springtide.simulation.strategy import Strategy
from springtide.simulation.traces.recorded import recorded
from springtide.simulation.traces.trace import Episode, Trace, sequences


def plain(number, *, common=4, failed=False):
    """Episodes are told apart by their first context."""
    turns = (Turn(100 + number, 0, 20, 1.5), Turn(140 + number, 120 + number, 10, 0.5))
    return Episode(turns, sequences(turns), common=common, failed=failed)


def trace(count, sizes=()):
    return Trace(name="t", format="f", slots=tuple((plain(n),) for n in range(count)), sizes=sizes)


def number(script):
    return script.turns[0].context - 100


def played(work, *, seed, groups):
    return [
        [number(work.script(seed=seed, task=task, slot=slot, attempt=1)) for slot in range(work.group_size)]
        for task in groups
    ]


def test_without_groups_neighbours_are_grouped_and_the_last_group_is_filled_up():
    work, told = recorded(trace(5), group_size=2)
    assert played(work, seed=0, groups=range(3)) == [[0, 1], [2, 3], [4, 0]]
    assert "filled up from the beginning (5 episodes)" in told[0]


@given(seed=st.integers(0, 9), passed=st.integers(0, 3))
def test_every_pass_plays_every_episode_and_only_the_first_is_in_trace_order(seed, passed):
    work, _ = recorded(trace(24), group_size=4)
    groups = played(work, seed=seed, groups=range(6 * passed, 6 * passed + 6))
    once = [each for group in groups for each in group]
    assert sorted(once) == list(range(24))
    assert (once == list(range(24))) == (seed == passed == 0)


def test_recorded_groups_stay_together_in_every_pass():
    work, _ = recorded(trace(6, sizes=(2, 1, 3)))
    groups = [[0, 1, 0], [2, 2, 2], [3, 4, 5]]
    assert played(work, seed=0, groups=range(3)) == groups
    assert sorted(played(work, seed=0, groups=range(3, 6))) == groups


def test_members_share_what_neighbours_have_in_common():
    slots = tuple((plain(n, common=common),) for n, common in enumerate((0, 50, 7, 60)))
    ungrouped, _ = recorded(Trace(name="t", format="f", slots=slots), group_size=2)
    assert ungrouped.trace.shared == 7
    scripts = [ungrouped.script(seed=0, task=task, slot=0, attempt=1) for task in (0, 1)]
    assert [(script.prefix, script.shared) for script in scripts] == [(50, 7), (60, 7)]
    later = ungrouped.script(seed=1, task=0, slot=0, attempt=1)
    assert later.prefix in (7, 50, 60)


def test_the_order_of_asking_does_not_matter():
    one, other = (Scripts(recorded(trace(10), group_size=2)[0], 3) for _ in range(2))
    for task in range(30, 0, -1):
        other.script(task=task, slot=0)
    assert [one.script(task=task, slot=1) for task in range(30)] == [
        other.script(task=task, slot=1) for task in range(30)
    ]


def test_latencies_can_be_scaled_and_nothing_else_changes():
    work, _ = recorded(trace(4), group_size=2)
    slow = work.model_copy(update={"latency_factor": 2.0}).script(seed=0, task=0, slot=0, attempt=1)
    given = work.script(seed=0, task=0, slot=0, attempt=1)
    assert [turn.latency for turn in slow.turns] == [3.0, 1.0]
    assert slow._replace(turns=()) == given._replace(turns=())


def test_episodes_end_before_they_are_too_long():
    long = Trace(name="t", format="f", slots=((plain(0),), (plain(20),), (plain(50),)))
    cut = long.within(155)
    assert [len(episode.turns) for episode in cut.episodes()] == [2, 1]
    assert [episode.trained for episode in cut.episodes()] == [(150,), (140,)]
    assert cut.assumptions[-1] == (
        "2 of 3 episodes end before a turn of more than 155 tokens, 1 of them before their first."
    )
    assert cut.longest <= 155
    assert long.within(1000) is long


def test_a_trace_that_is_shorter_than_a_run_is_simulated_to_the_end():
    slots = tuple((plain(n, failed=True), plain(n)) if n == 1 else (plain(n),) for n in range(6))
    work, _ = recorded(Trace(name="t", format="f", slots=slots, sizes=(2, 4)), groups_per_step=4)
    outcomes = simulate(work, cluster("h100-7b"), Strategy(rollout_ranks=4), seed=0, steps=3)
    assert outcomes.trained_tokens == (4 * 4 * 30,) * 3, "attempts that failed were made again"
