"""Moves ranks between rollout and training at a new version, as the scheduling decides."""

from collections.abc import Callable
from typing import Protocol

from springtide.scheduling.elasticity import Demand
from springtide.scheduling.events import Event, Published, RolesSet
from springtide.scheduling.readiness import Readiness, ReadinessFold


class Splitter(Protocol):
    """A policy of elasticity."""

    def split(self, seen: Readiness, rollout: int, demand: Demand) -> int:
        """Ranks that roll out from now on. Asked once per version, between steps."""
        ...


class Roles:
    """`now` is the clock's. What it wants is told to the scheduler as an event, and done when that is journalled."""

    def __init__(
        self,
        fold: ReadinessFold,
        elasticity: Splitter,
        *,
        demand: Demand,
        rollout: int,
        now: Callable[[], float],
        post: Callable[[Event], None],
    ) -> None:
        self._fold = fold
        self._elasticity = elasticity
        self._demand = demand
        self._now = now
        self._post = post
        self.rollout = rollout

    def decided(self, event: Event) -> None:
        if not isinstance(event, Published):
            return
        wanted = self._elasticity.split(self._fold.snapshot(self._now()), self.rollout, self._demand)
        if wanted != self.rollout:
            self.rollout = wanted
            self._post(RolesSet(wanted))
