"""Between a rank's event loop and its engine: what happens is noted on the one side and decided upon on the other."""

from collections.abc import Callable, Sequence
from functools import partial

from springtide.core.member import Member
from springtide.core.sampling import SampleRequest
from springtide.ports.engine import Engine, Finished
from springtide.runtime.parting import Parting
from springtide.scheduling.priority import Precedence
from springtide.scheduling.residency import Residency
from springtide.scheduling.retention import Session

Note = Callable[[], None]


class Steering:
    """Drives a `Residency`: only the lane touches it, in the order in which things happened on the loop.

    Turns that the engine cannot take yet stay here, where they can still be overtaken.
    """

    def __init__(self, residency: Residency, engine: Engine, now: Callable[[], float]) -> None:
        self._residency = residency
        self._engine = engine
        self._now = now
        self._notes: list[Note] = []
        self._held: dict[Member, SampleRequest] = {}
        self._presented: dict[Member, int] = {}
        self._dropped = False

    # -- on the loop -------------------------------------------------------------------------------------------------

    def ready(self, request: SampleRequest, precedence: Precedence) -> None:
        self._notes.append(partial(self._ready, request, self._now(), precedence))

    def reordered(self, member: Member, precedence: Precedence) -> None:
        self._notes.append(partial(self._residency.reordered, member, precedence))

    def ended(self, finished: Sequence[Finished]) -> None:
        now = self._now()
        self._notes += [partial(self._ended, turn, now) for turn in finished]

    def cancelled(self, member: Member) -> None:
        self._notes.append(partial(self._cancelled, member, self._now()))

    def closed(self, member: Member) -> None:
        self._notes.append(partial(self._closed, member, self._now()))

    def notes(self) -> list[Note]:
        """Everything since the last call, for the lane."""
        notes, self._notes = self._notes, []
        return notes

    # -- on the lane -------------------------------------------------------------------------------------------------

    def dropped(self) -> None:
        """The engine has just dropped all KV."""
        self._dropped = True

    def choose(self, notes: list[Note], now: float) -> list[SampleRequest]:
        """The turns to submit now, in this order. KV is moved for them first."""
        self._catch_up(notes, now)
        plan = self._residency.plan(now, self._engine.stats().hot_tokens)
        for member, place in plan.demote:
            self._engine.demote(member, place)
        for member in plan.prefetch:
            self._engine.prefetch(member)
        return [self._held.pop(member) for member in plan.submit]

    def vacate(self, notes: list[Note], now: float) -> None:
        """Before the engine is suspended."""
        self._catch_up(notes, now)
        for member, place in self._residency.vacate(now).demote:
            self._engine.demote(member, place)

    def withdraw(self, notes: list[Note], now: float) -> list[SampleRequest]:
        """The turns that are still here, given back: this rank takes no more."""
        self._catch_up(notes, now)
        held, self._held = self._held, {}
        return list(held.values())

    def part(self, member: Member, now: float) -> Session | None:
        """The member leaves this rank, with what is known of it."""
        self._presented.pop(member, None)
        return self._residency.parted(member, now)

    def join(self, parting: Parting, now: float) -> None:
        """The member comes from another rank. Its KV gets a place in host memory, or is lost."""
        session, taken = parting.session, 0
        if session is None:
            return
        # What the engine has dropped since it was asked last has not been looked at yet.
        if parting.handed is not None and not self._dropped:
            displaced = self._residency.host_room(session, parting.handed.tokens, now)
            for member in displaced or ():
                self._engine.demote(member, "cold")
            if displaced is not None:
                taken = self._engine.take_over(parting.member, parting.handed)
        self._residency.joined(session, taken, now)

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def _catch_up(self, notes: list[Note], now: float) -> None:
        for note in notes:
            note()
        if self._dropped:
            # What has been noted by now ended before the KV was dropped.
            self._residency.dropped(now)
            self._dropped = False

    def _ready(self, request: SampleRequest, at: float, precedence: Precedence) -> None:
        self._held[request.member] = request
        self._presented[request.member] = request.length
        self._residency.ready(request.member, request.turn, request.length, at, precedence)

    def _ended(self, turn: Finished, at: float) -> None:
        presented = self._presented.get(turn.member)
        if presented is not None:
            self._residency.paused(turn.member, presented + turn.sampled.length, at)

    def _cancelled(self, member: Member, at: float) -> None:
        self._held.pop(member, None)
        self._residency.cancelled(member, at)

    def _closed(self, member: Member, at: float) -> None:
        self._held.pop(member, None)
        self._presented.pop(member, None)
        self._residency.released(member, at)
