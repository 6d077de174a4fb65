"""A kill at every await point: nothing is lost, nothing happens twice, and sync ends with the same weights."""

import pytest

from fakes.game import FakeSource
from fakes.run import FakeRun, new_disk, small_config
from springtide.core.errors import SpringtideError, StorageFullError
from springtide.core.group import End
from springtide.scheduling.codec import COMMAND, EVENT, decode_command, decode_event
from springtide.scheduling.commands import Abort, IssueGroup, Train
from springtide.scheduling.events import RankDied, StepFinished
from springtide.simulation.virtual_loop import Killed

CASES = [
    ("sync", {}, {}),
    ("sync", {"filter_zero_variance": True}, {}),
    ("sync", {"filter_zero_variance": True}, {"scores_groups": True}),
    ("async", {}, {}),
    ("async", {}, {"scores_groups": True}),
    ("async", {"filter_zero_variance": True, "staleness": 2}, {"fault_rate": 0.2}),
]


def commands(disk, kind):
    decoded = [decode_command(entry.body) for entry in disk.entries if entry.kind == COMMAND]
    return [command for command in decoded if isinstance(command, kind)]


def check_ends(disk, config):
    """What the journal alone has to show."""
    trains = commands(disk, Train)
    assert [train.step for train in trains] == list(range(1, config.steps + 1))
    issued = {command.group: command for command in commands(disk, IssueGroup)}
    expected = {(group, slot) for group in issued for slot in range(config.group_size)}
    assert set(disk.ends) == expected, "each issued slot has one end"
    trained = {(train.step, group) for train in trains for group in train.groups}
    assert {(end.step, end.group) for end in disk.ends.values() if end.end is End.TRAINED} == trained


@pytest.mark.parametrize(("mode", "changes", "source"), CASES)
def test_a_kill_at_every_await_point(mode, changes, source):
    config = small_config(mode, **changes)
    whole = FakeRun(new_disk(), config, source=FakeSource(**source))
    _, loop = whole.start()
    check_ends(whole.disk, config)
    for point in range(loop.callbacks):
        disk = new_disk()
        with pytest.raises(Killed):
            FakeRun(disk, config, source=FakeSource(**source)).start(kill_after=point)
        resumed = FakeRun(disk, config, source=FakeSource(**source))
        resumed.start()
        check_ends(disk, config)
        if mode == "sync":
            assert resumed.trainer.weights == whole.trainer.weights, f"killed after {point} callbacks"


def test_a_kill_at_every_await_point_while_kv_is_refreshed():
    config = small_config("async", staleness=2)
    costs = {"refresh": 0.02, "generate": 0.05, "train": 1.0}

    def run(disk):
        return FakeRun(disk, config, kv="refresh", costs=costs, evaluation_tasks=0)

    whole = run(new_disk())
    _, loop = whole.start()
    assert whole.engine.refreshed > 10
    assert whole.ledger_seconds["engine"]["refresh"] >= 0.02 * whole.engine.refreshed
    for point in range(loop.callbacks):
        disk = new_disk()
        with pytest.raises(Killed):
            run(disk).start(kill_after=point)
        run(disk).start()
        check_ends(disk, config)


DEATHS = tuple((0.5 + 0.9 * number, number % 3, 1.2 + 0.9 * number) for number in range(12))


def test_a_kill_at_every_await_point_while_ranks_die_and_come_back():
    config = small_config("async", staleness=2, steps=4)

    def run(disk, deaths=DEATHS):
        return FakeRun(disk, config, ranks=3, deaths=deaths, evaluation_tasks=0)

    whole = run(new_disk())
    _, loop = whole.start()
    events = [decode_event(entry.body) for entry in whole.disk.entries if entry.kind == EVENT]
    assert sum(isinstance(event, RankDied) for event in events) == len(DEATHS)
    assert sum(isinstance(event, StepFinished) for event in events) == config.steps
    assert sum(lost for _, lost in whole.groupings) == len(DEATHS)
    assert whole.ledger_seconds["trainer"]["lost"] > 0, "a step was done again"
    for point in range(0, loop.callbacks, 3):
        disk = new_disk()
        with pytest.raises(Killed):
            run(disk).start(kill_after=point)
        run(disk, deaths=DEATHS[:1]).start()
        check_ends(disk, config)


@pytest.mark.parametrize(("mode", "ranks"), [("sync", 1), ("async", 1), ("async", 3)])
def test_a_journal_that_is_full_stops_the_run_and_nothing_is_lost(mode, ranks):
    config = small_config(mode)
    deaths = DEATHS if ranks > 1 else ()
    whole = FakeRun(new_disk(), config, ranks=ranks, deaths=deaths)
    whole.start()
    stopped = 0
    while True:
        disk = new_disk()
        try:
            FakeRun(disk, config, ranks=ranks, deaths=deaths, room=stopped).start()
            break
        except StorageFullError:
            before = list(disk.entries), dict(disk.ends)
        resumed = FakeRun(disk, config, ranks=ranks)
        resumed.start()
        assert disk.entries[: len(before[0])] == before[0]
        assert before[1].items() <= disk.ends.items()
        check_ends(disk, config)
        if mode == "sync":
            assert resumed.trainer.weights == whole.trainer.weights
        stopped += 1
    assert stopped > 10


def test_a_run_that_has_lost_all_its_ranks_stops_and_goes_on_with_others():
    config = small_config("async")
    disk = new_disk()
    with pytest.raises(SpringtideError, match="0 of 2 ranks are left, and none of them can roll out; bring ranks back"):
        FakeRun(disk, config, ranks=2, deaths=((1.0, 0, 1e9), (2.0, 1, 1e9))).start()
    assert len(commands(disk, Abort)) == 1
    FakeRun(disk, config, ranks=2).start()
    check_ends(disk, config)


def test_two_kills_in_a_row():
    config = small_config("sync")
    whole = FakeRun(new_disk(), config)
    _, loop = whole.start()
    for first in range(5, loop.callbacks, 17):
        for second in range(5, loop.callbacks, 41):
            disk = new_disk()
            with pytest.raises(Killed):
                FakeRun(disk, config).start(kill_after=first)
            try:
                final = FakeRun(disk, config)
                final.start(kill_after=second)
            except Killed:
                final = FakeRun(disk, config)
                final.start()
            check_ends(disk, config)
            assert final.trainer.weights == whole.trainer.weights


def test_steps_since_the_checkpoint_are_trained_again_on_the_journalled_groups():
    config = small_config("async", steps=6)
    disk = new_disk()
    first = FakeRun(disk, config, checkpoint_every=100)
    _, loop = FakeRun(new_disk(), config, checkpoint_every=100).start()
    with pytest.raises(Killed):
        first.start(kill_after=int(loop.callbacks * 0.6))
    assert len(first.trainer.history) >= 2
    second = FakeRun(disk, config, checkpoint_every=100)
    second.start()
    replayed = len(first.trainer.history)
    assert second.trainer.history[:replayed] == first.trainer.history
