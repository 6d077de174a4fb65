"""Moves ranks between rollout and training at a new version, as the scheduling decides."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from springtide.scheduling.elasticity import Demand
from springtide.scheduling.events import Event, Published, RolesSet
from springtide.scheduling.membership import Membership
from springtide.scheduling.readiness import Readiness, ReadinessFold


class Splitter(Protocol):
    """A policy of elasticity."""

    def split(self, seen: Readiness, rollout: int, demand: Demand) -> int:
        """Ranks that roll out from now on; all of them where they take turns. Asked once per version, between steps."""
        ...


class Roles:
    """`now` is the clock's. What it wants is told to the scheduler as an event, and done when that is journalled.
    `membership`: that of now; `demand` is of all its ranks, of which only the living can be had."""

    def __init__(
        self,
        fold: ReadinessFold,
        elasticity: Splitter,
        *,
        demand: Demand,
        membership: Callable[[], Membership],
        now: Callable[[], float],
        post: Callable[[Event], None],
    ) -> None:
        self._fold = fold
        self._elasticity = elasticity
        self._demand = demand
        self._now = now
        self._post = post
        self._membership = membership

    def decided(self, event: Event) -> None:
        if not isinstance(event, Published):
            return
        members = self._membership()
        rollout, demand = len(members.rollout), msgspec.structs.replace(self._demand, ranks=members.alive)
        wanted = self._elasticity.split(self._fold.snapshot(self._now()), rollout, demand)
        if wanted != rollout:
            self._post(RolesSet(wanted, together=wanted == members.alive))
