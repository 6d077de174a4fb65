"""Whole runs made of fakes: what the controller promises, with faults injected."""

import asyncio

import pytest

from fakes.engine import FakeEngine
from fakes.game import FakeGame, FakeSource
from fakes.journal import FakeJournal
from fakes.run import FakeRun, new_disk, small_config
from fakes.trainer import FakeTrainer
from springtide.core.errors import SpringtideError, StorageFullError
from springtide.core.group import End
from springtide.core.outcome import Invalid, InvalidCause
from springtide.scheduling.codec import EVENT, decode_event
from springtide.scheduling.events import CheckpointFailed, EvaluationFinished


def events(disk, kind):
    decoded = [decode_event(entry.body) for entry in disk.entries if entry.kind == EVENT]
    return [event for event in decoded if isinstance(event, kind)]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_two_runs_with_the_same_seed_are_the_same(mode):
    def journal():
        disk = new_disk()
        FakeRun(disk, small_config(mode)).start()
        return disk.entries

    assert journal() == journal()


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_no_token_is_older_than_the_bound_when_it_is_trained_on(staleness):
    run = FakeRun(new_disk(), small_config("async", steps=8, staleness=staleness, group_size=3))
    run.start()
    seen = set()
    for step, _, groups in run.trainer.history:
        for group in groups:
            oldest = min(member.oldest_version for member in group.members)
            assert oldest >= group.base_version
            seen.add(step - 1 - oldest)
    assert max(seen) <= staleness
    assert max(seen) > 0 or staleness == 0, "the run did overlap rollout and training"


def test_async_overlaps_what_sync_does_one_after_the_other():
    times = {}
    for mode in ("sync", "async"):
        _, loop = FakeRun(new_disk(), small_config(mode, steps=8), evaluation_tasks=0).start()
        times[mode] = loop.time()
    assert times["async"] < 0.8 * times["sync"]


def test_a_trainer_is_told_whether_it_would_only_wait():
    def waited(train):
        run = FakeRun(new_disk(), small_config("async", steps=8), evaluation_tasks=0, costs={"train": train})
        run.start()
        return sum(run.trainer.waited) / len(run.trainer.waited)

    # The last group of a step of two comes when its step begins: never more than half of them find it idle.
    assert waited(train=100.0) < 0.25 < waited(train=0.001) <= 0.5


def test_groups_are_whole_and_in_issue_order_within_the_window():
    config = small_config("async", steps=8, staleness=2, window=1)
    run = FakeRun(new_disk(), config)
    run.start()
    open_groups = set(range(100))
    for _, groups, members in run.trainer.history:
        assert [len(group.members) for group in members] == [2, 2]
        first = sorted(open_groups)[: config.groups_per_step + 1]
        assert set(groups) <= set(first)
        open_groups -= set(groups)


def test_environments_are_closed_and_sessions_released():
    run = FakeRun(new_disk(), small_config("async", max_attempts=2), source=FakeSource(fault_rate=0.3))
    run.start()
    assert run.source.open == 0
    assert {member.purpose for member in run.engine.sessions} <= {"evaluate"}, "the last evaluation ends with the run"


class CorruptOnce(FakeEngine):
    """Garbles the first handover of `version`, and remembers what every token was sampled from."""

    def __init__(self, version):
        super().__init__()
        self.version = version
        self.served = set()

    def load_weights(self, *, number, **kwargs):
        self.corrupt_next_load = number == self.version
        self.version = -1 if number == self.version else self.version
        return super().load_weights(number=number, **kwargs)

    def step(self, **kwargs):
        if self.running:
            self.served.add(self.weights)
        return super().step(**kwargs)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("version", [0, 2])
def test_a_corrupt_handover_is_repeated_and_never_serves(mode, version):
    run = FakeRun(new_disk(), small_config(mode, steps=4, staleness=2), evaluation_tasks=0)
    run.engine = CorruptOnce(version)
    run.start()
    assert run.engine.version == -1
    assert "corrupt" not in run.engine.served
    clean = FakeRun(new_disk(), small_config(mode, steps=4, staleness=2), evaluation_tasks=0)
    clean.start()
    assert run.trainer.number == 4
    assert mode == "async" or run.trainer.weights == clean.trainer.weights


def test_an_engine_that_never_proves_its_version_stops_the_run():
    class Liar(FakeEngine):
        def load_weights(self, **kwargs):
            self.corrupt_next_load = True
            return super().load_weights(**kwargs)

    run = FakeRun(new_disk(), small_config("sync"))
    run.engine = Liar()
    with pytest.raises(SpringtideError, match="does not hold version 0"):
        run.start()


def test_a_checkpoint_that_finds_the_disk_full_does_not_stop_the_run():
    class FullOnce(FakeTrainer):
        full = True

        def save(self, folder):
            if self.full:
                FullOnce.full = False
                raise StorageFullError("The disk is full.")
            super().save(folder)

    run = FakeRun(new_disk(), small_config("sync", steps=4))
    run.trainer = FullOnce()
    run.start()
    assert [event.step for event in events(run.disk, CheckpointFailed)] == [2]
    assert sorted(run.disk.checkpoints) == [0, 4]


def test_a_run_in_which_every_box_dies_stops_with_the_reason():
    run = FakeRun(new_disk(), small_config("async", max_attempts=1), source=FakeSource(fault_rate=1.0))
    with pytest.raises(SpringtideError, match="the box died"):
        run.start()
    assert {record.end for record in run.disk.ends.values()} == {End.INVALID}


def test_a_bug_in_the_trainer_is_not_swallowed():
    class Broken(FakeTrainer):
        def step(self, **kwargs):
            raise ZeroDivisionError("a bug")

    run = FakeRun(new_disk(), small_config("sync"))
    run.trainer = Broken()
    with pytest.raises(ZeroDivisionError):
        run.start()


def test_an_observer_that_fails_is_switched_off(caplog):
    class Broken:
        calls = 0

        def decided(self, event, commands):
            Broken.calls += 1
            raise OSError("no space for metrics")

    run = FakeRun(new_disk(), small_config("sync"), observers=[Broken()])
    run.start()
    assert Broken.calls == 1
    assert "Broken failed and is switched off" in caplog.text


def test_a_hanging_group_expires_whole_and_its_prompt_is_issued_again():
    class HangsOnce(FakeSource):
        hung = False

        def create(self):
            return HangingGame(self)

    class HangingGame(FakeGame):
        async def reset(self, task):
            if not self.source.hung:
                self.source.hung = True
                self.source.open += 1
                await asyncio.sleep(10**6)
            self.source.open += 1
            return await super().reset(task)

    run = FakeRun(
        new_disk(),
        small_config("async", group_deadline=50.0, steps=3),
        source=HangsOnce(),
        evaluation_tasks=0,
    )
    run.start()
    expired = {record.group for record in run.disk.ends.values() if record.end is End.EXPIRED}
    assert expired == {0}
    tasks = [member.task_id for _, _, groups in run.trainer.history for group in groups for member in group.members]
    assert tasks.count("train-0") == 2, "the prompt was issued again, as a whole group"


def test_evaluations_meet_the_same_tasks_at_every_version():
    run = FakeRun(new_disk(), small_config("sync"))
    run.start()
    counts = events(run.disk, EvaluationFinished)
    assert [count.version for count in counts] == [0, 2, 3]
    tasks = [trajectory.task_id for trajectory in run.disk.evaluations]
    assert tasks == ["evaluate-0", "evaluate-1"] * 3


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_second_of_a_lane_has_a_name(mode):
    run = FakeRun(new_disk(), small_config(mode))
    _, loop = run.start()
    assert set(run.ledger_shares) == {"engine", "trainer", "journal"}
    assert max(run.ledger_shares.values()) < 0.01
    for bins in run.ledger_seconds.values():
        assert sum(bins.values()) == pytest.approx(loop.time(), rel=0.02)


STALLS = {
    "a slow environment": ({}, {"latency": True, "pace": 20.0}, "engine", "environment"),
    "a slow engine": ({"generate": 10.0}, {}, "trainer", "rollout"),
    "a slow trainer": ({"train": 60.0}, {}, "engine", "training"),
    "a slow handover": ({"load_weights": 30.0}, {}, "trainer", "publication"),
    "a slow journal": ({"append": 3.0}, {}, "engine", "journal"),
    "a slow checkpoint": ({"checkpoint": 60.0}, {}, "trainer", "checkpoint"),
}


@pytest.mark.parametrize("stall", STALLS)
def test_a_planted_stall_lands_in_its_own_bin(stall):
    costs, environment, lane, bin_name = STALLS[stall]
    config = small_config("sync")

    def seconds(costs, environment):
        run = FakeRun(new_disk(), config, source=FakeSource(**environment), evaluation_tasks=0, costs=costs)
        run.start()
        assert max(run.ledger_shares.values()) < 0.01
        return run.ledger_seconds[lane]

    healthy, stalled = seconds({}, {}), seconds(costs, environment)
    growth = {name: stalled[name] - healthy.get(name, 0.0) for name in stalled}
    assert max(growth, key=growth.get) == bin_name
    assert growth[bin_name] > 0.8 * sum(max(value, 0.0) for value in growth.values())


def test_timers_are_not_shown_as_waits():
    class Looks:
        seen = set()

        def decided(self, event, commands):
            Looks.seen |= {wait.name.split()[0] for wait in run.controller.waits()}

        def trained(self, report, groups):
            pass

        def evaluated(self, version, trajectories):
            pass

    run = FakeRun(new_disk(), small_config("async"), observers=[Looks()])
    run.start()
    assert Looks.seen >= {"episode", "tokens", "train"}
    assert "deadline" not in Looks.seen


def test_the_wait_for_the_journal_is_shown_with_its_age():
    class Looks(FakeJournal):
        ages = []

        def append(self, **what):
            super().append(**what)
            asyncio.get_running_loop().call_later(2.0, self.look)

        def look(self):
            waits = run.controller.waits()
            Looks.ages += [wait.age for wait in waits if (wait.name, wait.owner) == ("append", "journal")]

    run = FakeRun(new_disk(), small_config("sync"), evaluation_tasks=0, costs={"append": 3.0})
    run.journal = Looks(run.disk)
    run.start()
    assert Looks.ages
    assert Looks.ages == pytest.approx([2.0] * len(Looks.ages))


@pytest.mark.parametrize("scores_groups", [False, True])
def test_in_sync_the_latency_of_environments_changes_nothing(scores_groups):
    config = small_config(
        "sync",
        steps=4,
        groups_per_step=4,
        group_size=2,
        max_concurrent=5,
        filter_zero_variance=True,
        max_filtered_per_step=2,
    )
    weights = set()
    for pace in (0.0, 0.3, 1.0, 7.0, 30.0):
        run = FakeRun(new_disk(), config, source=FakeSource(turns=3, pace=pace, scores_groups=scores_groups))
        run.start()
        weights.add(run.trainer.weights)
        assert {record.end for record in run.disk.ends.values()} == {End.TRAINED, End.FILTERED}
    assert len(weights) == 1


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_group_is_trained_on_with_the_rewards_that_it_earned_as_a_group(mode):
    run = FakeRun(new_disk(), small_config(mode, group_size=4), source=FakeSource(scores_groups=True))
    run.start()
    for _, _, groups in run.trainer.history:
        for group in groups:
            said = [member.trained_tokens for member in group.members]
            assert [m.reward for m in group.members] == [float(n > sum(said) / 4) for n in said]


def test_a_group_that_cannot_be_graded_expires_with_the_reason():
    class Broken(FakeSource):
        async def score_group(self, members):
            failed = Invalid(cause=InvalidCause.VERIFIER, detail="the judge is away")
            return [failed for _ in members]

    run = FakeRun(new_disk(), small_config("async"), source=Broken(scores_groups=True))
    with pytest.raises(SpringtideError, match="the judge is away"):
        run.start()
    assert {(record.end, record.reason) for record in run.disk.ends.values()} == {(End.INVALID, "the judge is away")}
