"""A watch on a virtual clock: what it tells, when it stops a run, and what does not end it."""

import pytest

from springtide.core.errors import UsageError
from springtide.diagnosis.follow.growth import mark_of
from springtide.diagnosis.follow.watch import OWN_SHARE, Watch
from springtide.diagnosis.verdict import Cause, Diagnosis, Evidence, Symptom, Verdict


class Clock:
    """Time passes in sleeps alone; `plan` has (time, what happens)."""

    def __init__(self, *plan):
        self.time = 0.0
        self._plan = sorted(plan, key=lambda entry: entry[0])

    def now(self):
        return self.time

    def sleep(self, seconds):
        end = self.time + seconds
        while self._plan and self._plan[0][0] <= end:
            at, happens = self._plan.pop(0)
            self.time = at
            happens()
        self.time = end


class Ear:
    """Hears every alert."""

    def __init__(self):
        self.alerts = []
        self.looks = []

    def send(self, alert):
        self.alerts.append(alert)

    def looked(self, diagnoses, now):
        self.looks.append((now, [each.verdict for each in diagnoses]))

    @property
    def heard(self):
        return [(each.kind, each.symptom, each.verdict, each.step) for each in self.alerts]


class Run:
    """A log whose content is the diagnosis that its readers would come to."""

    def __init__(self, path):
        self.path = path
        self.found = []

    def write(self, *steps, **symptoms):
        """Appends; `steps` of each run in the log."""

        def happens():
            with self.path.open("a") as file:
                file.write("step\n")
            self.found = [diagnosis(step, symptoms, source=f"run {index}") for index, step in enumerate(steps)]

        return happens

    def look(self):
        return self.found


def diagnosis(step, symptoms, source="run 0"):
    found = tuple(
        Symptom(
            id=name,
            name=name.lower(),
            title=f"Title of {name}",
            verdict=Verdict(verdict),
            onset_step=step - 1,
            evidence=(Evidence(metric="m", text="It is high."),),
            causes=(Cause(id="c1", title="the cause", score=1.0, remedy="lr = 1"), Cause(id="c2", title="x", score=0)),
            next_check="Look.",
        )
        for name, verdict in symptoms.items()
    )
    worst = max((each.verdict for each in found), key=["OK", "WATCH", "SICK"].index, default=Verdict.OK)
    return Diagnosis(source=source, framework="trl", steps=step, verdict=worst, symptoms=found, rollback_step=step // 2)


class Stopper:
    def __init__(self, there=True):
        self.there = there
        self.calls = 0

    def stop(self):
        self.calls += 1
        return self.there


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "log")


def watch(run, clock, ear, *, idle=100.0, warn=None, **more):
    return Watch(
        look=more.pop("look", run.look),
        mark=lambda: mark_of(run.path),
        channels=[ear],
        warn=warn or pytest.fail,
        clock=clock,
        interval=10.0,
        idle=idle,
        **more,
    )


def test_tells_what_comes_what_worsens_and_what_heals_once_each(run):
    clock = Clock(
        (5, run.write(10)),
        (25, run.write(20, S20="WATCH")),
        (45, run.write(30, S20="WATCH", S06="OK")),
        (65, run.write(40, S20="SICK")),
        (85, run.write(50, S20="SICK")),
        (105, run.write(60, S20="OK")),
    )
    ear = Ear()
    assert watch(run, clock, ear).run() == {"run 0": Verdict.OK}
    assert ear.heard == [
        ("symptom", "S20", "WATCH", 20),
        ("symptom", "S20", "SICK", 40),
        ("healed", "S20", "", 60),
    ]
    worst = ear.alerts[1]
    assert worst.text == "SICK S20 Title of S20 since step 39. It is high. Likeliest cause: the cause."
    assert (worst.causes, worst.rollback_step, worst.next_check, worst.remedy) == (("c1", "c2"), 20, "Look.", "lr = 1")


def test_nothing_is_read_while_nothing_is_appended(run):
    looks = []

    def look():
        looks.append(clock.now())
        return run.look()

    clock = Clock((5, run.write(10)), (55, run.write(20)))
    watch(run, clock, Ear(), look=look).run()
    assert looks == [0.0, 10.0, 60.0]


def test_a_slow_look_makes_the_next_one_later(run):
    looks = []

    def look():
        looks.append(clock.time)
        clock.time += 30.0
        run.write(len(looks) + 1)()
        return run.look()

    clock = Clock()
    watched = watch(run, clock, Ear(), look=look, ended=lambda: len(looks) == 3)
    watched.run()
    assert looks == [0.0, 30.0 * (1 + OWN_SHARE), 2 * 30.0 * (1 + OWN_SHARE), 3 * 30.0 * (1 + OWN_SHARE)]


def test_stops_a_run_that_stays_sick_over_two_looks_with_new_steps(run):
    clock = Clock(
        (5, run.write(10, S06="SICK")),
        (25, run.write(10, S06="SICK")),
        (45, run.write(20, S06="SICK")),
        (65, run.write(30, S06="SICK")),
    )
    ear, stopper = Ear(), Stopper()
    watch(run, clock, ear, stopper=stopper).run()
    assert stopper.calls == 1
    assert ear.heard == [("symptom", "S06", "SICK", 10), ("stopped", "S06", "SICK", 20)]
    assert ear.alerts[1].rollback_step == 10


def test_stops_nothing_for_two_symptoms_in_turn_or_for_one_that_healed(run):
    clock = Clock(
        (5, run.write(10, S06="SICK")),
        (25, run.write(20, S20="SICK")),
        (45, run.write(30, S06="SICK", S20="WATCH")),
        (65, run.write(40, S06="OK")),
    )
    stopper = Stopper()
    watch(run, clock, Ear(), stopper=stopper).run()
    assert stopper.calls == 0


def test_an_earlier_run_in_the_log_stops_nothing(run):
    def two(step):
        def happens():
            run.write(5, step)()
            run.found[0] = diagnosis(5 + step, {"S06": "SICK"}, source="earlier")

        return happens

    clock = Clock((5, two(10)), (25, two(20)), (45, two(30)))
    stopper = Stopper()
    watch(run, clock, Ear(), stopper=stopper).run()
    assert stopper.calls == 0


def test_says_if_the_process_was_gone(run):
    clock = Clock((5, run.write(10, S06="SICK")), (25, run.write(20, S06="SICK")))
    ear = Ear()
    watch(run, clock, ear, stopper=Stopper(there=False)).run()
    assert ear.heard[-1][0] == "not_stopped"


def test_a_log_that_is_not_there_yet_is_waited_for(run):
    def look():
        if not run.path.exists():
            raise UsageError("There is nothing at log.")
        return run.look()

    warnings = []
    clock = Clock((55, run.write(10, S01="WATCH")))
    ear = Ear()
    watch(run, clock, ear, look=look, warn=warnings.append).run()
    assert warnings == ["There is nothing at log."]
    assert ear.heard == [("symptom", "S01", "WATCH", 10)]


def test_a_look_that_fails_does_not_end_the_watch(run):
    def look():
        if len(run.path.read_text()) < 10:
            raise KeyError("odd")
        return run.look()

    warnings = []
    clock = Clock((5, run.write(10)), (25, run.write(20, S01="SICK")))
    ear = Ear()
    watch(run, clock, ear, look=look, warn=warnings.append).run()
    assert ear.heard == [("symptom", "S01", "SICK", 20)]
    assert any("KeyError" in warning for warning in warnings)


def test_a_run_that_goes_silent_is_told_once(run):
    clock = Clock(*((5 + 60 * index, run.write(10 * (index + 1))) for index in range(6)))
    ear = Ear()
    watch(run, clock, ear, idle=2000.0).run()
    assert ear.heard == [("silent", "S58", "", 60)]
    assert 305 + 300 <= ear.alerts[0].time <= 305 + 330


def test_ends_with_the_run_after_a_last_look(run):
    over = []

    def finish():
        run.write(20, S06="SICK")()
        over.append(True)

    clock = Clock((5, run.write(10)), (35, finish))
    ear = Ear()
    assert watch(run, clock, ear, ended=lambda: bool(over)).run() == {"run 0": Verdict.SICK}
    assert clock.time == 40.0
    assert ear.heard == [("symptom", "S06", "SICK", 20)]


def test_growth_is_seen_in_folders_and_not_where_steps_do_not_show(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "logs").mkdir()
    marks = [mark_of(tmp_path)]
    for name in ("status.json", "checkpoints/weights.safetensors", "journal.sqlite-wal"):
        (tmp_path / name).write_text("x")
        assert mark_of(tmp_path) == marks[0]
    for text in ("a", "ab"):
        (tmp_path / "logs" / "metrics.jsonl").write_text(text)
        marks.append(mark_of(tmp_path))
    assert len(set(marks)) == 3
    assert mark_of(tmp_path / "nowhere") == ()
