"""What a resumed process makes of the journal: the same decisions, or a plain word about why not."""

import contextlib
import copy

import pytest

from fakes.game import FakeSource
from fakes.run import FakeRun, new_disk, small_config
from fakes.trainer import FakeTrainer
from springtide.core.errors import RunDamagedError, SpringtideError
from springtide.ports.journal import Entry
from springtide.ports.trainer import StepReport
from springtide.scheduling.codec import COMMAND, EVENT, decode_command, decode_event, encode
from springtide.scheduling.commands import Abort, Train
from springtide.scheduling.events import Boundary, EvaluationFinished, ProcessStarted, StepFinished
from springtide.simulation.virtual_loop import Killed


def killed(config, *, share, source=None, **options):
    """The disk of a run that died after this share of its callbacks."""
    _, loop = FakeRun(new_disk(), config, source=FakeSource(**(source or {})), **options).start()
    return killed_at(int(share * loop.callbacks), config, source=source, **options)


def killed_at(point, config, *, source=None, **options):
    disk = new_disk()
    with pytest.raises(Killed):
        FakeRun(disk, config, source=FakeSource(**(source or {})), **options).start(kill_after=point)
    return disk


def of_kind(disk, kind):
    events = [decode_event(entry.body) for entry in disk.entries if entry.kind == EVENT]
    commands = [decode_command(entry.body) for entry in disk.entries if entry.kind == COMMAND]
    return [record for record in (*events, *commands) if isinstance(record, kind)]


@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        ("sync", {"groups_per_step": 3}),
        ("sync", {"group_size": 1}),
        ("sync", {"group_size": 3}),
        ("async", {"groups_per_step": 1}),
        ("async", {"max_concurrent": 3}),
        ("async", {"staleness": 3}),
        ("async", {"group_deadline": 7.0}),
    ],
)
def test_another_recipe_than_the_runs_own_is_refused(mode, changes):
    disk = killed(small_config(mode), share=0.5)
    with pytest.raises(RunDamagedError, match=r"recipe or the version of Springtide has changed .* --from STEP"):
        FakeRun(disk, small_config(mode, **changes)).start()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_journal_that_lacks_a_row_is_damaged_unless_nothing_follows_from_it(mode):
    config = small_config(mode)
    disk = killed(config, share=0.6)
    for index, entry in enumerate(disk.entries):
        hurt = copy.deepcopy(disk)
        del hurt.entries[index]
        expected = pytest.raises if entry.kind == COMMAND else contextlib.suppress
        with expected(RunDamagedError):
            FakeRun(hurt, config).start()


def test_a_lost_episode_and_a_lost_step_are_named():
    config = small_config("sync", steps=4)
    rare = {"checkpoint_every": 100}
    disk = killed(config, share=0.8, **rare)
    group = of_kind(disk, Train)[0].groups[1]
    del disk.trajectories[group, 0]
    with pytest.raises(RunDamagedError, match=rf"lacks the episode {group}\.0, "):
        FakeRun(disk, config, **rare).start()

    branch = new_disk()
    older = branch.checkpoints.pop(0)
    parent = FakeTrainer()
    parent.number = 2
    folder: dict = {}
    parent.save(folder)
    branch.checkpoints[2] = (folder, Boundary(step=2, next_group=4, next_task=4))
    FakeRun(branch, config).start()
    branch.checkpoints = {0: older}
    with pytest.raises(RunDamagedError, match="lacks step 1, "):
        FakeRun(branch, config).start()


def test_other_words_for_giving_up_are_no_other_decision():
    config = small_config("async", max_attempts=1)
    disk = new_disk()
    for _ in range(2):
        with pytest.raises(SpringtideError, match="the box died"):
            FakeRun(disk, config, source=FakeSource(fault_rate=1.0)).start()
        words = [encode(abort) for abort in of_kind(disk, Abort)]
        other = encode(Abort("All is lost."))
        disk.entries = [Entry(e.kind, other if e.body in words else e.body, e.time) for e in disk.entries]


class Watches:
    """An observer that remembers what was told about steps."""

    def __init__(self):
        self.trained_steps = []
        self.recovered_steps = []

    def decided(self, event, commands):
        pass

    def evaluated(self, version, trajectories):
        pass

    def trained(self, report, groups):
        self.trained_steps.append(report.step)

    def recovered(self, report, groups):
        self.recovered_steps.append((report.step, tuple(group.id for group in groups)))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_step_is_told_once_also_the_one_that_is_finished_in_recovery(mode):
    config = small_config(mode)
    _, loop = FakeRun(new_disk(), config).start()
    recovered = 0
    for point in range(0, loop.callbacks, 3):
        disk = killed_at(point, config)
        finished = {event.step for event in of_kind(disk, StepFinished)}
        left = [(train.step, train.groups) for train in of_kind(disk, Train) if train.step not in finished]
        watches = Watches()
        FakeRun(disk, config, observers=[watches]).start()
        assert watches.recovered_steps == left
        assert watches.trained_steps == list(range(len(finished) + len(left) + 1, config.steps + 1))
        opened = [event.open_step for event in of_kind(disk, ProcessStarted) if event.open_step is not None]
        assert [step.step for step in opened] == [step for step, _ in left]
        recovered += len(left)
    assert recovered > 0


def test_an_evaluation_that_nobody_makes_up_for_is_named(caplog):
    config = small_config("async", steps=6)
    slow = {"pace": 4.0}
    _, loop = FakeRun(new_disk(), config, source=FakeSource(**slow)).start()
    lost = 0
    for point in range(0, loop.callbacks, 5):
        disk = killed_at(point, config, source=slow)
        caplog.clear()
        FakeRun(disk, config, source=FakeSource(**slow)).start()
        missing = {0, 2, 4, 6} - {event.version for event in of_kind(disk, EvaluationFinished)}
        assert {record.args[0] for record in caplog.records if "left out of the curve" in record.msg} == missing
        lost += len(missing)
    assert lost > 0


@pytest.mark.parametrize(
    ("mode", "exact", "refused"),
    [("sync", True, True), ("sync", False, False), ("async", True, False), ("async", False, False)],
)
def test_only_a_trainer_that_repeats_itself_bit_for_bit_is_held_to_it(caplog, mode, exact, refused):
    config = small_config(mode, steps=4)
    rare = {"checkpoint_every": 100}
    disk = killed(config, share=0.7, **rare)
    assert of_kind(disk, StepFinished)
    run = FakeRun(disk, config, **rare)
    run.trainer = FakeTrainer(exact=exact)
    run.trainer.step = _rounding_otherwise(run.trainer)
    if refused:
        with pytest.raises(RunDamagedError, match="gives other weights"):
            run.start()
    else:
        scheduler, _ = run.start()
        assert scheduler.trained == config.steps
        assert "gives other weights" in caplog.text


def _rounding_otherwise(trainer):
    """Its steps, each with a last bit that differs from one process to the next."""
    plain = trainer.step

    def step(**arguments):
        plain(**arguments)
        trainer.weights = f"other {trainer.weights}"[:64]
        return StepReport(step=trainer.number, version=trainer.version, trained_tokens=1)

    return step
