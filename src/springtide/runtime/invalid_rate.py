"""Whether the share of invalid episodes rises with training.

An invalid episode earns nothing and teaches nothing, so nothing holds back a policy that drifts towards breaking its
box. What shows it is a rate that is higher under the newest policy versions than under the first ones. An episode
counts for the version that served when it ended.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from springtide.scheduling.commands import CancelGroup, Command
from springtide.scheduling.events import CANCELLED, Event, GroupScored, MemberFinished, Published

ENOUGH = 20
"""Episodes on either side below which no rise is claimed."""

ALARM = 3.0
"""Standard errors by which the newest rate exceeds the first one before it is a rise (one in 740 by chance)."""


class Count(msgspec.Struct):
    """Episodes that ended, and those of them without a verdict. `last`: the newest version among theirs."""

    ended: int = 0
    invalid: int = 0
    last: int = -1

    @property
    def rate(self) -> float:
        return self.invalid / self.ended


class Rise(msgspec.Struct, frozen=True):
    """The rate under the first versions and under the newest ones, which exceeds it by more than chance."""

    first: Count
    newest: Count

    def __str__(self) -> str:
        first, newest = self.first, self.newest
        return (
            f"the invalid rate rose from {first.rate:.1%} ({first.ended} episodes up to version {first.last}) to "
            f"{newest.rate:.1%} ({newest.ended} up to version {newest.last})"
        )


class InvalidRates:
    """Told all events in order, those of earlier processes included. `total` counts over all versions.

    Where groups are graded as a whole (`scores_groups`), a member has its verdict once its group has.
    """

    def __init__(self, *, scores_groups: bool) -> None:
        self._scores_groups = scores_groups
        self._ungraded: dict[int, set[int]] = {}
        self._counts: dict[int, Count] = {}
        self.version = -1
        self.total = Count()

    def on(self, event: Event, commands: Iterable[Command]) -> None:
        match event:
            case Published(version):
                self.version = version
            case MemberFinished(reason=reason) if reason != CANCELLED:
                self._finished(event)
            case GroupScored():
                for slot in self._ungraded.pop(event.group, set()):
                    self._count(invalid=event.rewards[slot] is None)
        for command in commands:
            if isinstance(command, CancelGroup):
                self._ungraded.pop(command.group, None)

    def rate(self, version: int) -> float | None:
        """Of the episodes that ended while `version` served; None if none did."""
        count = self._counts.get(version)
        return None if count is None else count.rate

    def rise(self) -> Rise | None:
        """None unless both ends of training have enough episodes and the difference is more than chance."""
        versions = list(self._counts)
        first, newest = self._pooled(versions), self._pooled(versions[::-1])
        apart = first.ended + newest.ended <= self.total.ended
        if not apart or min(first.ended, newest.ended) < ENOUGH:
            return None
        return Rise(first, newest) if _standard_errors(first, newest) > ALARM else None

    def _finished(self, event: MemberFinished) -> None:
        ungraded = self._ungraded.setdefault(event.group, set()) if self._scores_groups else set()
        if event.reward is not None and self._scores_groups:
            ungraded.add(event.slot)
            return
        ungraded.discard(event.slot)
        self._count(invalid=event.reward is None)

    def _count(self, *, invalid: bool) -> None:
        for count in (self.total, self._counts.setdefault(self.version, Count())):
            count.ended += 1
            count.invalid += invalid

    def _pooled(self, versions: Sequence[int]) -> Count:
        """The versions in this order until there are enough episodes."""
        pooled = Count()
        for version in versions:
            if pooled.ended >= ENOUGH:
                break
            count = self._counts[version]
            pooled = Count(pooled.ended + count.ended, pooled.invalid + count.invalid, max(pooled.last, version))
        return pooled


def _standard_errors(first: Count, newest: Count) -> float:
    """How far the newest rate exceeds the first: the two-proportion z statistic with pooled variance."""
    rate = (first.invalid + newest.invalid) / (first.ended + newest.ended)
    error = math.sqrt(rate * (1 - rate) * (1 / first.ended + 1 / newest.ended))
    return (newest.rate - first.rate) / error if error > 0 else 0.0
