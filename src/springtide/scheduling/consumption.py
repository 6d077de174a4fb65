"""Which groups the next step is made of: places go to groups as they are complete.

Within a window of the issue order, and never to one whose place an older group needs that would become too old by
waiting: so no group is overtaken for ever, and no token is staler than the bound. Who is in a step depends on nothing
but the order in which groups were complete: not on when the trainer is free, nor on how it goes about its work.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from springtide.scheduling.live_group import LiveGroup


@dataclass
class Places:
    """The `size` places of the step that is filled. `waiting`: groups that are complete, kept, and without a place."""

    size: int
    window: int
    taken: int = 0
    waiting: int = 0

    @property
    def full(self) -> bool:
        return self.taken == self.size

    def fill(self, groups: Iterable[LiveGroup], *, oldest: int) -> list[LiveGroup]:
        """Those of `groups`, which come in issue order, that get a place now.

        All complete ones with a base version of `oldest` or less (the mandatory set); of the others, within the window,
        the earliest issued, as long as each mandatory group has a place of its own. That the mandatory set fits into a
        step takes `window` <= `size`: see scheduler.py.
        """
        if not self.waiting or self.full:
            return []
        live = list(groups)
        free = self.size - self.taken - sum(not group.placed and group.base_version <= oldest for group in live)
        assert free >= 0, "admission and the window bound the mandatory set by one batch"
        chosen = []
        for group in live[: self.size + self.window]:
            if not group.judged or group.placed:
                continue
            if group.base_version > oldest:
                if free == 0:
                    continue
                free -= 1
            group.placed = True
            chosen.append(group)
        self.taken += len(chosen)
        self.waiting -= len(chosen)
        return chosen

    def clear(self) -> None:
        """The step has begun, and the next one is filled from now on."""
        self.taken = 0
