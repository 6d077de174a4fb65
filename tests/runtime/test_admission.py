from springtide.core.member import Member, Purpose
from springtide.runtime.admission import TURNS, Admission
from springtide.scheduling.config import SchedulingConfig
from springtide.scheduling.events import Boundary, ConcurrencySet, ProcessStarted, Published, RunStarted
from springtide.scheduling.milestones import Milestones
from springtide.scheduling.readiness import ReadinessFold
from springtide.scheduling.scheduler import Scheduler


class Law:
    start = 3

    def __init__(self, limits):
        self.limits = iter(limits)

    def limit(self, seen):
        return next(self.limits)


def told(limits, *, turns):
    fold, posted = ReadinessFold(prefilled=lambda: 0), []
    admission = Admission(fold, law=Law(limits), ranks=lambda: 2, now=lambda: 0.0, post=posted.append)
    admission.start()
    for number in range(turns):
        fold.turn_ended(Member(Purpose.TRAIN, number, 0), 0.0, context=1, output=1)
    return posted


def test_a_limit_is_set_for_all_ranks_together_and_only_when_it_moves():
    posted = told([None, 10, 10.4, 12, 8], turns=5 * TURNS + TURNS // 2)
    assert posted == [ConcurrencySet(limit) for limit in (6, 20, 24, 16)]


def scheduler(**changes):
    config = SchedulingConfig(mode="async", groups_per_step=4, group_size=2, steps=3, **changes)
    made = Scheduler(config, Milestones(last=3))
    made.on(RunStarted(Boundary()))
    made.on(ProcessStarted(0))
    return made


def test_a_smaller_limit_lets_the_running_end_and_a_larger_one_starts_more():
    made = scheduler(max_concurrent=100)
    made.on(ConcurrencySet(3))
    made.on(Published(0))
    assert len(made.in_flight) == 3
    assert [type(command).__name__ for command in made.on(ConcurrencySet(5))] == ["StartMember"] * 2
    assert made.on(ConcurrencySet(1)) == []
    assert len(made.in_flight) == 5


def test_what_the_recipe_allows_stays_the_most():
    made = scheduler(max_concurrent=4)
    made.on(ConcurrencySet(50))
    made.on(Published(0))
    assert len(made.in_flight) == 4
