"""How far live groups have come and what they probably have before them, folded from events. Pure.

The unit of work is a sampled token: what else a turn takes goes with them. An episode of a group is expected to be as
long as those of it that have ended, with the mean of all ended episodes as a prior; and no shorter than its furthest
member and one more turn, which is how a group of long episodes is known before any of it has ended.

Every event costs O(1), but for the end of an episode, which costs a look at its group, and a new version, which costs
one at all groups.
"""

from dataclasses import dataclass, field

from springtide.core.member import Member
from springtide.scheduling.readiness import TURN_WEIGHT, Mean

PRIOR = 2
"""Ended episodes of its own that weigh as much in a group's mean as those of all others together."""

EPISODE_WEIGHT = 1 / 256
"""Of an ended episode in the means: enough of them for short ones, which end first, not to prevail."""

VERSION_WEIGHT = 1 / 4
"""Of the latest version in the mean time between two."""


@dataclass(slots=True)
class Work:
    """Of one group. `base`: its version. `left`: members that are not done, started or not; `open`: tokens that each of
    those in flight has sampled, at most `furthest`, and `sampled` in sum. `done` members sampled `tokens` in sum.

    `urgent`: it would keep the trainer waiting.
    """

    base: int
    left: int
    open: dict[Member, int] = field(default_factory=dict)
    furthest: int = 0
    sampled: int = 0
    done: int = 0
    tokens: int = 0
    urgent: bool = False


class Progress:
    """Of the groups that have members left. `staleness`: the bound K. Times are in seconds."""

    def __init__(self, *, staleness: int) -> None:
        self._staleness = staleness
        self._groups: dict[int, Work] = {}
        self._began: dict[Member, float] = {}
        self._episode = Mean(EPISODE_WEIGHT)
        self._turn = Mean(TURN_WEIGHT)
        self._pace = Mean(EPISODE_WEIGHT)
        self._interval = Mean(VERSION_WEIGHT)
        self._version = 0
        self._published_at: float | None = None

    # -- what happens ------------------------------------------------------------------------------------------------

    def issued(self, group: int, *, base: int, left: int, now: float) -> None:
        """`left` of its members are not done."""
        self._groups[group] = Work(base, left)
        self._judge(self._groups[group], now)

    def started(self, member: Member, now: float) -> None:
        work = self._groups.get(member.group)
        if work is not None:
            work.open[member] = 0
            self._began[member] = now

    def sampled(self, member: Member, tokens: int) -> None:
        """A turn of the member has ended, in which it sampled `tokens`."""
        work = self._groups.get(member.group)
        if work is None or member not in work.open:
            return
        self._turn.add(tokens)
        work.open[member] += tokens
        work.sampled += tokens
        work.furthest = max(work.furthest, work.open[member])

    def ended(self, member: Member, now: float, *, valid: bool, done: bool) -> None:
        """Its attempt is over. `done`: there is none after it."""
        began = self._began.pop(member, now)
        work = self._groups.get(member.group)
        if work is None or member not in work.open:
            return
        tokens = work.open.pop(member)
        work.sampled -= tokens
        work.furthest = max(work.open.values(), default=0)
        if valid and tokens:
            self._episode.add(tokens)
            self._pace.add((now - began) / tokens)
            work.done += 1
            work.tokens += tokens
        work.left -= done
        if work.left:
            self._judge(work, now)
        else:
            del self._groups[member.group]

    def given_up(self, group: int) -> None:
        work = self._groups.pop(group, None)
        for member in work.open if work is not None else ():
            self._began.pop(member, None)

    def published(self, version: int, now: float) -> None:
        """The engines serve `version` from now on."""
        if self._published_at is not None and version > self._version:
            self._interval.add((now - self._published_at) / (version - self._version))
        self._version, self._published_at = version, now
        for work in self._groups.values():
            self._judge(work, now)

    # -- what is expected --------------------------------------------------------------------------------------------

    def member_left(self, member: Member) -> float:
        """Tokens that the member has still to sample; 0 if nothing is known of it."""
        work = self._groups.get(member.group)
        return 0.0 if work is None else self._length(work) - work.open.get(member, 0)

    def group_left(self, group: int) -> float:
        """Tokens that all members of the group have still to sample; 0 if nothing is known of it."""
        work = self._groups.get(group)
        return 0.0 if work is None else work.left * self._length(work) - work.sampled

    def urgent(self, group: int) -> int | None:
        """The version of a group that would keep the trainer waiting; None of any other."""
        work = self._groups.get(group)
        return work.base if work is not None and work.urgent else None

    def _length(self, work: Work) -> float:
        """Tokens of an episode of the group."""
        prior = self._episode.value or 0.0
        mean = (PRIOR * prior + work.tokens) / (PRIOR + work.done)
        return max(mean, work.furthest + (self._turn.value or 0.0))

    def _judge(self, work: Work, now: float) -> None:
        """The step after version `base` + K has to wait for the group. At the present pace, is that version there
        before its last member is done?"""
        ahead = work.base + self._staleness - self._version
        if ahead <= 0:
            work.urgent = True
            return
        if self._interval.value is None or self._published_at is None:
            work.urgent = False
            return
        slack = self._published_at + ahead * self._interval.value - now
        least = 0 if len(work.open) < work.left else min(work.open.values(), default=0)
        work.urgent = slack < (self._length(work) - least) * (self._pace.value or 0.0)
