"""Which KV a rank keeps on the device while environments work, and which ready turns enter the engine. Pure.

One object per rank. It is told what becomes of each session, and at the boundaries of visits it answers with commands.
Paused sessions leave the device only when somebody needs the room: KV is copied to host memory as it is computed, so
leaving costs nothing and is never worth doing ahead of need. What a policy decides is who leaves first, and until when
a paused session is *guarded*: turns that have no KV here wait rather than take its room.

Ready turns enter in the order of `ready_turns.py`; those for which the engine has no room are held back here. A turn
that is overdue goes before all others, and nobody enters before there is room for it: from then on it waits for no more
than the turns that run, and those that have waited longer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from springtide.core.member import Member
from springtide.scheduling.lazy_heap import LazyHeap
from springtide.scheduling.priority import Precedence, oldest
from springtide.scheduling.ready_turns import ReadyTurns
from springtide.scheduling.retention import Load, Place, RetentionPolicy, Session
from springtide.scheduling.shared_prompt import SharedPrompt

PATIENCE = 0.1
"""Weight of the latest turn in the mean length of an answer."""


@dataclass(slots=True)
class Plan:
    """What to do with the engine now, in this order."""

    demote: list[tuple[Member, Literal["warm", "cold"]]] = field(default_factory=list)
    prefetch: list[Member] = field(default_factory=list)
    submit: list[Member] = field(default_factory=list)


class Residency:
    """The sessions of one rank that holds `capacity` tokens of KV on the device and `host` in host memory.

    `decode_steps` are those of a visit: so much may every running sequence grow before anybody is asked again.
    `reserved` is what a session of so many tokens of its own takes of the capacity, where that is more than they are
    and so leaves room to grow; `shares_prompts`: a group's prompt lies on the device once, and not in every member's
    own tokens.
    """

    def __init__(
        self,
        policy: RetentionPolicy,
        *,
        capacity: int,
        host: int,
        max_batch: int,
        decode_steps: int,
        reserved: Callable[[int], int] | None = None,
        shares_prompts: bool = True,
        patience: float = inf,
    ) -> None:
        self._policy = policy
        self._reserved = reserved or int
        self._grows = reserved is None
        self._shares_prompts = shares_prompts
        self._capacity = capacity
        self._host = host
        self._max_batch = max_batch
        self._decode_steps = decode_steps
        self._sessions: dict[Member, Session] = {}
        self._groups: dict[tuple[str, int], SharedPrompt] = {}
        self._running = 0
        self._context = 0
        self._output = 0.0
        self._ready = ReadyTurns(patience=patience)
        self._open = LazyHeap[float]()
        self._guarded = LazyHeap[float]()
        self._expiries = LazyHeap[float]()
        self._warm = LazyHeap[float]()
        self._paused_tokens = 0
        self._open_tokens = 0
        self._host_used = 0
        self._free = 0

    # -- what happens ------------------------------------------------------------------------------------------------

    def ready(self, member: Member, turn: int, tokens: int, now: float, precedence: Precedence | None = None) -> None:
        """A turn that presents `tokens` tokens waits. By default its `precedence` is that of its group's age."""
        precedence = precedence or oldest(member)
        session = self._sessions.get(member)
        if session is None:
            session = self._sessions[member] = Session(member, self._common(turn, tokens), precedence)
        elif turn:
            self._policy.returned(session, now)
        self._unpause(session, now)
        session.turn, session.length, session.state = turn, tokens, "ready"
        session.precedence = precedence
        self._ready.add(session, now)

    def reordered(self, member: Member, precedence: Precedence) -> None:
        """If the member's turn still waits, it has another place in line from now on."""
        session = self._sessions.get(member)
        if session is not None and session.state == "ready" and session.precedence != precedence:
            session.precedence = precedence
            self._ready.put(session)

    def paused(self, member: Member, kv_tokens: int, now: float) -> None:
        """A turn has ended, its environment is at work, and the KV of `kv_tokens` is on the device."""
        session = self._sessions.get(member)
        if session is None or session.state != "running":
            return
        self._output += PATIENCE * (kv_tokens - session.length - self._output)
        self._stop(session)
        session.kv = kv_tokens
        self._pause(session, now)

    def cancelled(self, member: Member, now: float) -> None:
        """The session's turn was dropped."""
        session = self._sessions.get(member)
        if session is None or session.state == "paused":
            return
        self._stop(session)
        self._pause(session, now)

    def released(self, member: Member, now: float) -> None:
        """The episode is over."""
        session = self._sessions.get(member)
        if session is not None:
            self._stop(session)
            self._unpause(session, now)
            self._put(session, "cold")
            del self._sessions[member]

    def dropped(self, now: float) -> None:
        """All KV of sessions that do not run is gone."""
        for session in self._sessions.values():
            if session.state == "paused":
                self._unpause(session, now)
                self._put(session, "cold")
            elif session.state == "ready":
                self._put(session, "cold")
                self._ready.put(session)

    def vacate(self, now: float) -> Plan:
        """Everybody who does not run leaves the device, which is wanted for something else."""
        plan = Plan()
        while self._evict(plan, now, guarded=True):
            pass
        for session in self._sessions.values():
            if session.state == "ready" and session.place == "hot":
                self._leave_device(session, plan, now)
        return plan

    def parted(self, member: Member, now: float) -> Session | None:
        """The session leaves this rank, with what is known of it; its KV is not."""
        session = self._sessions.get(member)
        if session is None:
            return None
        if session.state != "paused":
            session.since = now
        self._stop(session)
        self._unpause(session, now)
        self._put(session, "cold")
        session.state = "paused"
        return self._sessions.pop(member)

    def host_room(self, session: Session, tokens: int, now: float) -> list[Member] | None:
        """Who leaves host memory for a session that comes from another rank with `tokens` tokens. None: it has to stay
        out."""
        if tokens > self._host:
            return None
        displaced = list(self._displaced(tokens, self._policy.worth(session, now)))
        for member in displaced:
            self._put(self._sessions[member], "cold")
        return displaced if self._host_used + tokens <= self._host else None

    def joined(self, session: Session, tokens: int, now: float) -> None:
        """It is here, between two turns, with `tokens` tokens in host memory; cold without any."""
        self._sessions[session.member] = session
        if tokens:
            self._put(session, "warm", tokens)
            self._warm.push(session.member, self._policy.worth(session, now))

    def place(self, member: Member) -> Place:
        """Where the session's KV is, as far as anybody here was told."""
        session = self._sessions.get(member)
        return session.place if session is not None else "cold"

    # -- what to do --------------------------------------------------------------------------------------------------

    def plan(self, now: float, hot_tokens: int) -> Plan:
        """Commands for the engine, which has `hot_tokens` on the device. Whoever is in `submit` runs from now on."""
        plan = Plan()
        self._free = self._capacity - hot_tokens
        self._expire(now)
        if self._grows:
            self._make_room(self._running * self._decode_steps, plan, now, guarded=True)
        while self._paused_tokens > self._policy.cap * self._capacity and self._evict(plan, now, guarded=True):
            pass
        if self._admit_overdue(plan, now):
            self._admit(plan, now)
        if not self._running:
            self._insist(plan, now)
        self._look_ahead(plan)
        return plan

    def _admit(self, plan: Plan, now: float) -> None:
        """Ready turns while there is room. One that does not fit stops its own line, not the others."""
        stopped: set[Place] = set()
        while self._running < self._max_batch and (session := self._ready.first(without=stopped)) is not None:
            if self._enters(session, plan, now):
                self._submit(session, plan)
            else:
                stopped.add(session.place)

    def _admit_overdue(self, plan: Plan, now: float) -> bool:
        """Whether there was room for all of them. They may take anybody's who pauses."""
        while (session := self._ready.overdue(now)) is not None:
            needed = self._needed(session) + (0 if session.place == "hot" else self._growth())
            if self._running >= self._max_batch or not self._make_room(needed, plan, now, guarded=True):
                return False
            self._submit(session, plan)
        return True

    def _enters(self, session: Session, plan: Plan, now: float) -> bool:
        """Make room for a turn. One that holds KV may take a guarded session's, as it would hold its own idle."""
        needed = self._needed(session)
        if session.place == "hot":
            return self._make_room(needed, plan, now, guarded=True)
        needed += self._growth()
        allowed = self._policy.room(self._load()) * self._capacity
        return self._occupied(now) + needed <= allowed and self._make_room(needed, plan, now, guarded=False)

    def _insist(self, plan: Plan, now: float) -> None:
        """Nothing runs: somebody does, whoever is guarded; for one that is overdue, others that are ready make way."""
        overdue = self._ready.overdue(now)
        session = overdue or self._ready.nearest()
        if session is not None:
            needed = self._needed(session) + self._decode_steps
            while not self._make_room(needed, plan, now, guarded=True) and session is overdue:
                last = self._ready.last_hot(but=session)
                if last is None:
                    break
                self._leave_device(last, plan, now)
            self._submit(session, plan)

    def _look_ahead(self, plan: Plan) -> None:
        """Reload for turns that wait for a place in the batch alone."""
        while self._running >= self._max_batch and (session := self._ready.warm()) is not None:
            needed = self._needed(session)
            if needed + self._growth() > self._free:
                return
            plan.prefetch.append(session.member)
            self._free -= needed
            self._put(session, "hot")
            self._ready.put(session)

    def _occupied(self, now: float) -> float:
        """Tokens on the device that turns without KV here may not have."""
        return self._capacity - self._free - self._open_tokens + self._policy.demand(now)

    def _needed(self, session: Session) -> int:
        """Tokens of room that the session's turn takes when it enters."""
        whole = self._reserved(session.length + 1 - session.common)
        if session.place == "hot":
            return max(0, whole - self._reserved(session.own))
        return whole + (0 if session.group in self._groups else session.common)

    def _common(self, turn: int, tokens: int) -> int:
        """Of a new session, whose first turn presents its group's prompt."""
        return tokens if self._shares_prompts and not turn else 0

    def _growth(self) -> int:
        """Tokens that what runs, and one more, will probably still add."""
        return int((self._running + 1) * max(self._output / 2, self._decode_steps)) if self._grows else 0

    def _load(self) -> Load:
        return Load(self._running, self._context / max(1, self._running), self._host - self._host_used)

    # -- the ways of a session ---------------------------------------------------------------------------------------

    def _submit(self, session: Session, plan: Plan) -> None:
        self._free -= self._needed(session)
        plan.submit.append(session.member)
        self._ready.remove(session)
        self._put(session, "hot", session.length)
        session.state = "running"
        self._running += 1
        self._context += session.length

    def _stop(self, session: Session) -> None:
        if session.state == "running":
            self._running -= 1
            self._context -= session.length
        elif session.state == "ready":
            self._ready.remove(session)

    def _pause(self, session: Session, now: float) -> None:
        session.state, session.since = "paused", now
        if session.place == "hot":
            until, session.order = self._policy.hold(session, self._load(), now)
            self._paused_tokens += self._reserved(session.own)
            if until > now:
                self._expiries.push(session.member, until)
                self._guarded.push(session.member, session.order)
            else:
                self._offer(session)
        elif session.place == "warm":
            self._warm.push(session.member, self._policy.worth(session, now))

    def _unpause(self, session: Session, now: float) -> None:
        """Out of everything that only paused sessions are in."""
        if session.state != "paused":
            return
        if session.place == "hot":
            self._policy.left(session, now)
            self._paused_tokens -= self._reserved(session.own)
            if session.member in self._open:
                self._open.discard(session.member)
                self._count(session, open_=-1)
            self._expiries.discard(session.member)
            self._guarded.discard(session.member)
        self._warm.discard(session.member)

    def _offer(self, session: Session) -> None:
        """Whoever needs its room may have it."""
        self._open.push(session.member, session.order)
        self._count(session, open_=1)

    def _expire(self, now: float) -> None:
        while (first := self._expiries.first()) is not None and first[0] <= now:
            self._expiries.discard(first[1])
            self._guarded.discard(first[1])
            self._offer(self._sessions[first[1]])

    # -- room --------------------------------------------------------------------------------------------------------

    def _make_room(self, tokens: int, plan: Plan, now: float, *, guarded: bool) -> bool:
        while self._free < tokens:
            if not self._evict(plan, now, guarded=guarded):
                return False
        return True

    def _evict(self, plan: Plan, now: float, *, guarded: bool) -> bool:
        """One paused session leaves the device; a guarded one only if nobody else is left and the need is urgent."""
        first = self._open.first() or (self._guarded.first() if guarded else None)
        if first is None:
            return False
        session = self._sessions[first[1]]
        self._unpause(session, now)
        self._leave_device(session, plan, now)
        return True

    def _leave_device(self, session: Session, plan: Plan, now: float) -> None:
        """To host memory, if that has room, or has it from those that are worth less."""
        alone = self._groups[session.group].hot == 1
        self._free += self._reserved(session.own) + (session.common if alone else 0)
        worth = self._policy.worth(session, now)
        to: Literal["warm", "cold"] = "cold"
        if session.kv <= self._host:
            for member in self._displaced(session.kv, worth):
                self._put(self._sessions[member], "cold")
                plan.demote.append((member, "cold"))
            to = "warm" if self._host_used + session.kv <= self._host else "cold"
        plan.demote.append((session.member, to))
        self._put(session, to)
        if session.state == "ready":
            self._ready.put(session)
        elif to == "warm":
            self._warm.push(session.member, worth)

    def _displaced(self, tokens: int, worth: float) -> Iterator[Member]:
        """Who leaves host memory for a session of `tokens` tokens: paused ones that are worth less."""
        while self._host_used + tokens > self._host:
            least = self._warm.first()
            if least is None or least[0] >= worth:
                return
            self._warm.discard(least[1])
            yield least[1]

    def _put(self, session: Session, place: Place, kv: int | None = None) -> None:
        """Book where the session's KV is from now on."""
        if session.place == "hot":
            self._count(session, hot=-1)
        elif session.place == "warm":
            self._host_used -= session.kv
        session.place = place
        session.kv = 0 if place == "cold" else session.kv if kv is None else kv
        if place == "hot":
            self._count(session, hot=1)
        elif place == "warm":
            self._host_used += session.kv

    def _count(self, session: Session, *, hot: int = 0, open_: int = 0) -> None:
        """One more or less of its group on the device, or among those that may be moved out."""
        group = self._groups.setdefault(session.group, SharedPrompt(session.common))
        before = group.open_tokens if group.hot else 0
        group.hot += hot
        group.open += open_
        after = group.open_tokens if group.hot else 0
        self._open_tokens += after - before + open_ * self._reserved(session.own)
        if not group.hot:
            del self._groups[session.group]
