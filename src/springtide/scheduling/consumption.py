"""Which groups a step is made of: places go to groups as they are complete.

Within a window of the issue order, and never to one whose place an older group needs that would become too old by
waiting: so no group is overtaken for ever, and no token is staler than the bound. When a step is full the next one is
filled, whether the trainer has begun the full one or not: who is in a step depends on nothing but the order in which
groups were complete, not on how the trainer goes about its work.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from springtide.scheduling.live_group import LiveGroup


@dataclass
class Places:
    """Of step `filling`, `taken` of `size` places are given to groups; all earlier steps are full. An event costs the
    same however many groups are live, but for those that take one out of the middle or fill a step, which cost a look
    at two batches of them.

    `waiting` (a heap): groups that are complete, kept, and without a place. `without`: how many groups of each base
    version are without one. `edge`: the last group within the window; None if unknown, -1 if all groups are.
    """

    filling: int
    size: int
    window: int
    staleness: int
    taken: int = 0
    waiting: list[int] = field(default_factory=list)
    without: dict[int, int] = field(default_factory=dict)
    edge: int | None = None

    def full(self, step: int) -> bool:
        return step < self.filling

    def issued(self, group: LiveGroup) -> None:
        self.without[group.base_version] = self.without.get(group.base_version, 0) + 1
        if self.edge == -1:
            self.edge = None

    def kept(self, group: LiveGroup) -> None:
        """It is complete and worth training on."""
        heapq.heappush(self.waiting, group.id)

    def given_up(self, group: LiveGroup) -> None:
        """It ended without a place."""
        self._count_off(group)
        self.edge = None

    def fill(self, groups: Mapping[int, LiveGroup]) -> Iterator[LiveGroup]:
        """Those of `groups`, which are in issue order, that get a place now.

        All complete ones that the step after next would find too old (the mandatory set), which are the earliest
        issued; then the others within the window, earliest first, as long as each mandatory group has a place of its
        own. That the mandatory set fits into a step takes `window` <= `size`: see scheduler.py.
        """
        while self.waiting:
            group = groups[self.waiting[0]]
            oldest = self.filling - 1 - self.staleness
            mandatory = sum(count for base, count in self.without.items() if base <= oldest)
            assert self.taken + mandatory <= self.size, "admission and the window bound the mandatory set by one batch"
            spare = group.base_version <= oldest or self.taken + mandatory < self.size
            if not spare or not self._in_window(group, groups):
                return
            heapq.heappop(self.waiting)
            self._give(group)
            yield group

    def _give(self, group: LiveGroup) -> None:
        group.step = self.filling
        self.taken += 1
        self._count_off(group)
        if self.taken == self.size:
            self.filling, self.taken, self.edge = self.filling + 1, 0, None

    def _in_window(self, group: LiveGroup, groups: Mapping[int, LiveGroup]) -> bool:
        if self.edge is None:
            last = self.size + self.window - 1
            unfilled = (each.id for each in groups.values() if each.step is None or each.step == self.filling)
            self.edge = next(islice(unfilled, last, None), -1)
        return self.edge == -1 or group.id <= self.edge

    def _count_off(self, group: LiveGroup) -> None:
        self.without[group.base_version] -= 1
        if not self.without[group.base_version]:
            del self.without[group.base_version]
