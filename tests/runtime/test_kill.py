"""A kill at every await point: nothing is lost, nothing happens twice, and sync ends with the same weights."""

import pytest

from fakes.game import FakeSource
from fakes.run import FakeRun, new_disk, small_config
from springtide.core.group import End
from springtide.scheduling.codec import COMMAND, decode_command
from springtide.scheduling.commands import IssueGroup, Train
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
