"""The turns of a rank that wait for a place, in the order in which they go. Pure.

Of turns that are equally urgent (`priority.py`), those whose KV is at hand go before those that have to be computed
again. Among the former the order is that of their precedence, and where that is equal those on the device go first:
that a reload overlaps with decoding makes the rest equal.
"""

from collections.abc import Container

from springtide.core.member import Member
from springtide.scheduling.lazy_heap import LazyHeap
from springtide.scheduling.priority import Precedence
from springtide.scheduling.retention import Place, Session


class ReadyTurns:
    """One line for each place of KV. `patience`: seconds after which a turn is overdue. O(log n) per turn."""

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._sessions: dict[Member, Session] = {}
        self._lines: dict[Place, LazyHeap[Precedence]] = {"hot": LazyHeap(), "warm": LazyHeap(), "cold": LazyHeap()}
        self._since = LazyHeap[float]()

    def add(self, session: Session, now: float) -> None:
        """Its turn waits from now on."""
        self._sessions[session.member] = session
        self._since.push(session.member, now)
        self.put(session)

    def put(self, session: Session) -> None:
        """Where the KV of a turn that waits is now, by its precedence of now."""
        for line in self._lines.values():
            line.discard(session.member)
        self._lines[session.place].push(session.member, session.precedence)

    def remove(self, session: Session) -> None:
        del self._sessions[session.member]
        self._since.discard(session.member)
        self._lines[session.place].discard(session.member)

    def first(self, *, without: Container[Place] = ()) -> Session | None:
        """Who is next, of those whose KV is elsewhere than `without`."""
        heads = (line.first() for place, line in self._lines.items() if place not in without)
        return min((self._sessions[head[1]] for head in heads if head is not None), key=_order, default=None)

    def nearest(self) -> Session | None:
        """Who is next of those on the device; if there is nobody, of those in host memory; else of the others."""
        head = next((line.first() for line in self._lines.values() if line), None)
        return None if head is None else self._sessions[head[1]]

    def warm(self) -> Session | None:
        """Who is next of those in host memory."""
        head = self._lines["warm"].first()
        return None if head is None else self._sessions[head[1]]

    def last_hot(self, *, but: Session) -> Session | None:
        """Of all others on the device than `but`, who would go last. O(n)."""
        last = self._lines["hot"].last(but=but.member)
        return None if last is None else self._sessions[last]

    def overdue(self, now: float) -> Session | None:
        """Of those who have waited too long, the one that has waited longest."""
        first = self._since.first()
        return self._sessions[first[1]] if first is not None and now - first[0] >= self._patience else None


def _order(session: Session) -> tuple[int, int, bool, float, float]:
    band, base, first, then = session.precedence
    return band, base, session.place == "cold", first, then
