"""Tells the scheduler how many episodes may be in flight, as an event like any other: journalled before it counts."""

from collections.abc import Callable

from springtide.scheduling.admission import ConcurrencyLaw
from springtide.scheduling.events import ConcurrencySet, Event
from springtide.scheduling.readiness import ReadinessFold

WORTH = 0.05
"""A limit that differs by less from the one in force is not worth an entry in the journal."""

TURNS = 64
"""Turns that end between two looks."""


class Admission:
    """Looks at `fold` every so many turns. `ranks`: how many roll out now."""

    def __init__(
        self,
        fold: ReadinessFold,
        *,
        law: ConcurrencyLaw,
        ranks: Callable[[], int],
        now: Callable[[], float],
        post: Callable[[Event], None],
    ) -> None:
        self._fold = fold
        self._law = law
        self._ranks = ranks
        self._now = now
        self._post = post
        self._seen = 0
        self._limit = 0
        fold.subscribe(self._turn_ended)

    def start(self) -> None:
        """Before anything is known."""
        self._set(self._law.start * self._ranks())

    def _turn_ended(self) -> None:
        if self._fold.turns < self._seen + TURNS:
            return
        self._seen = self._fold.turns
        limit = self._law.limit(self._fold.snapshot(self._now()))
        if limit is not None and abs(limit * self._ranks() - self._limit) > WORTH * self._limit:
            self._set(limit * self._ranks())

    def _set(self, limit: int) -> None:
        self._limit = limit
        self._post(ConcurrencySet(limit))
