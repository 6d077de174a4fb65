"""Which of two ready turns goes first. Pure.

Evaluation before everything, since the next version waits for it; then turns of groups that would keep the trainer
waiting, the oldest version first; then by the index of a rule. Ties are broken by member, so the order is total. What
`residency.py` adds: a turn that has waited too long goes before all of that, and at the same band it matters whose KV
is at hand.
"""

from collections.abc import Callable
from math import inf
from typing import Literal, NamedTuple, Protocol

from springtide.core.member import Member, Purpose
from springtide.scheduling.progress import Progress
from springtide.scheduling.readiness import Mean, Readiness

PriorityName = Literal["oldest", "value", "longest", "switch"]

EVALUATION, URGENT, REST = range(3)
"""Bands: whoever is in an earlier one goes first."""

STEP_WEIGHT = 1 / 4
"""Of the latest step in how long training takes."""


class Precedence(NamedTuple):
    """Of a turn; the least goes first. `base` is the version of a group that is urgent, 0 of any other."""

    band: int
    base: int
    first: float
    then: float


class Priority(Protocol):
    """`patience`: seconds after which a turn goes before all others."""

    patience: float

    def of(self, member: Member) -> Precedence:
        """Of the member's ready turn, as things are now."""
        ...

    def sampled(self, member: Member, tokens: int) -> None:
        """A turn of the member has ended, in which it sampled `tokens`."""
        ...


class Oldest:
    """First issued, first served. Consumption is in windowed issue order and waits for the oldest versions, so that
    this order is also that of urgency; and a turn is overtaken only by those of groups that were in flight with it,
    which the staleness bound limits.
    """

    patience = inf

    def of(self, member: Member) -> Precedence:
        return oldest(member)

    def sampled(self, member: Member, tokens: int) -> None:
        pass


def oldest(member: Member) -> Precedence:
    return Precedence(EVALUATION if member.purpose is Purpose.EVALUATE else REST, 0, member.group, 0.0)


Index = Callable[[Progress, Member], tuple[float, float]]
"""`first` and `then` of a training turn; the least goes first."""


def shortest_group(progress: Progress, member: Member) -> tuple[float, float]:
    """A complete group is worth the same whatever it took, so the one that has least before it yields most per unit of
    work (weighted shortest processing time); the last member of a group is nearly always first. Within a group, the
    member that has most before it."""
    return progress.group_left(member.group), -progress.member_left(member)


def longest(progress: Progress, member: Member) -> tuple[float, float]:
    """The episode that has most before it, which is what the end of all waits for (longest processing time)."""
    return -progress.member_left(member), member.group


class Ranked:
    """By what groups have before them."""

    def __init__(self, progress: Progress, index: Index, *, patience: float) -> None:
        self.progress = progress
        self.patience = patience
        self.index = index

    def of(self, member: Member) -> Precedence:
        if member.purpose is Purpose.EVALUATE:
            return oldest(member)
        base = self.progress.urgent(member.group)
        return Precedence(REST if base is None else URGENT, base or 0, *self.index(self.progress, member))

    def sampled(self, member: Member, tokens: int) -> None:
        self.progress.sampled(member, tokens)


class Switch(Ranked):
    """The shortest group while the trainer would wait for groups, the longest episode while it has enough of them:
    as long as it is busy, nothing is gained by a group that is complete earlier, and what is long can begin.
    """

    def __init__(self, progress: Progress, *, batch: int, patience: float) -> None:
        super().__init__(progress, shortest_group, patience=patience)
        self._batch = batch
        self._began: float | None = None
        self._seconds = Mean(STEP_WEIGHT)

    def training(self, now: float) -> None:
        """A train step begins."""
        self._began = now

    def trained(self, now: float) -> None:
        """It is applied."""
        if self._began is not None:
            self._seconds.add(now - self._began)
        self._began = None

    def look(self, seen: Readiness, now: float) -> bool:
        """At the present pace, is the next batch complete when the trainer is free? Whether that changes the order."""
        free = now if self._began is None else max(now, self._began + (self._seconds.value or 0.0))
        missing = max(0, self._batch - seen.backlog)
        interval = inf if seen.interval is None else seen.interval
        index = shortest_group if missing and now + missing * interval > free else longest
        changed = index is not self.index
        self.index = index
        return changed


def priority(name: PriorityName, *, aging: float, staleness: int, batch: int, sync: bool) -> Priority:
    """The rule of that name. `staleness`: the bound K; `batch`: groups per step; `aging`: seconds.

    In sync the trainer starves until all of a batch is complete: a switch is for what ends the batch soonest.
    """
    if name == "oldest":
        return Oldest()
    progress = Progress(staleness=staleness)
    if name == "value":
        return Ranked(progress, shortest_group, patience=aging)
    if name == "longest" or sync:
        return Ranked(progress, longest, patience=aging)
    return Switch(progress, batch=batch, patience=aging)
