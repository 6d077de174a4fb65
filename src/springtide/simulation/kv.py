"""What KV a modelled rank holds, and where: on the device, in host memory, nowhere.

Blocks are copied to host memory as they fill (write-through), on a stream of their own, so leaving the device is free.
A session that comes back keeps its host copy until the room is needed for one that has no other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from springtide.core.kv_versions import KvVersions
from springtide.core.member import Member
from springtide.ports.engine import HandedOver

Place = Literal["hot", "warm", "cold"]


@dataclass(slots=True)
class Session:
    """An episode's KV on this rank: the `kv` leading tokens of its path.

    `common` of them lie in blocks that it shares with its group. `versions`: of the weights that computed them.
    `arrives`: when the KV that is being reloaded is there. `copied` tokens of it lie in host memory.
    """

    member: Member
    common: int
    kv: int = 0
    place: Place = "cold"
    versions: KvVersions = field(default_factory=KvVersions)
    arrives: float = 0.0
    copied: int = 0

    @property
    def own(self) -> int:
        return max(0, self.kv - self.common)


class KvMemory:
    """`hot` and `warm` are the tokens on the device and in host memory; never more than `capacity` and `host`.

    A group's prompt counts once, although members that have it from two versions hold two copies for a while. It serves
    only those who would compute it under the same version.
    """

    def __init__(self, *, capacity: int, host: int) -> None:
        self.capacity = capacity
        self.host = host
        self.hot = 0
        self.warm = 0
        self.demotions = 0
        self.paused: dict[Member, None] = {}
        """Hot sessions between two turns, the longest pause first."""
        self.waiting: dict[Member, None] = {}
        """Hot sessions whose turn is queued, in order of submission."""
        self._sessions: dict[Member, Session] = {}
        self._kept: dict[Member, None] = {}
        self._spare: dict[Member, None] = {}
        self._groups: dict[int, dict[Member, None]] = {}
        self._shared_version = -1

    def get(self, member: Member) -> Session | None:
        return self._sessions.get(member)

    def __getitem__(self, member: Member) -> Session:
        return self._sessions[member]

    def session(self, member: Member, *, common: int) -> Session:
        """That of `member`, made if there is none."""
        session = self._sessions.get(member)
        if session is None:
            session = self._sessions[member] = Session(member, common)
        return session

    def shared(self, member: Member, *, prefix: int, shared: int, version: int) -> int:
        """Leading tokens whose KV others have under `version`: the group's `prefix`, or what all episodes share."""
        if self.has_prompt(member, prefix=prefix, version=version):
            return prefix
        if self._shared_version == version:
            return shared
        self._shared_version = version
        return 0

    def has_prompt(self, member: Member, *, prefix: int, version: int) -> bool:
        """Whether another of its group has the first `prefix` tokens on the device, computed under `version`."""
        mates = (self._sessions[mate] for mate in self._groups.get(member.group, ()) if mate != member)
        return any(mate.versions.leading(version) >= prefix for mate in mates)

    def needed(self, session: Session, tokens: int) -> int:
        """Room that it takes to have `tokens` of a session on the device."""
        if session.place == "hot":
            return tokens - session.kv
        return tokens - (session.common if self._groups.get(session.member.group) else 0)

    def hold(self, session: Session, kv: int) -> None:
        """The session is hot with `kv` tokens. Room has been made."""
        group = session.member.group
        if session.place == "hot":
            self.hot -= session.own
        else:
            if group not in self._groups:
                self.hot += session.common
            self._groups.setdefault(group, {})[session.member] = None
            if session.place == "warm":
                del self._kept[session.member]
                self._spare[session.member] = None
        session.kv, session.place = kv, "hot"
        self.hot += session.own

    def make_room(self, tokens: int, *, to: Literal["warm", "cold"], keep: Member | None = None) -> bool:
        """Evict until `tokens` more fit: the longest pause first, then of those whose turn waits the last in line."""
        while self.hot + tokens > self.capacity:
            victim = next(self._victims(keep), None)
            if victim is None:
                return False
            self.move(self._sessions[victim], to)
        return True

    def _victims(self, keep: Member | None) -> Iterator[Member]:
        yield from (member for member in self.paused if member != keep)
        yield from (member for member in reversed(self.waiting) if member != keep)

    def move(self, session: Session, to: Literal["warm", "cold"]) -> None:
        """Off the device, or out of host memory; to nowhere where host memory has no room."""
        if session.place == "hot":
            self._leave_device(session)
        self._drop_copy(session)
        session.place = "cold"
        if to == "warm" and session.kv <= self.host:
            while self.warm + session.kv > self.host:
                self._free_host()
            session.place, session.copied = "warm", session.kv
            self._kept[session.member] = None
            self.warm += session.kv
        else:
            session.kv = 0
            session.versions.truncate(0)

    def remove(self, member: Member) -> None:
        session = self._sessions.pop(member, None)
        if session is not None:
            self.move(session, "cold")

    def hand_over(self, member: Member) -> HandedOver | None:
        """The session leaves this rank."""
        session = self._sessions.get(member)
        if session is None:
            return None
        tokens, versions = session.kv, session.versions
        session.versions = KvVersions()
        self.remove(member)
        return HandedOver(tokens=tokens, session=(session.common, versions)) if tokens else None

    def take_over(self, member: Member, handed: HandedOver, *, since: int) -> int:
        """Into host memory, if it is of version `since` or later; the tokens that are there."""
        common, versions = handed.session
        session = self.session(member, common=common)
        if versions.oldest >= since:
            session.kv, session.versions = handed.tokens, versions
            self.move(session, "warm")
        return session.kv

    def hot_sessions(self) -> Iterator[Member]:
        """The longest on the device first."""
        return (member for group in self._groups.values() for member in group)

    def drop_all(self) -> None:
        """Every session is cold."""
        for session in self._sessions.values():
            self.move(session, "cold")

    def _leave_device(self, session: Session) -> None:
        group = session.member.group
        self.demotions += 1
        self.paused.pop(session.member, None)
        self.waiting.pop(session.member, None)
        self.hot -= session.own
        del self._groups[group][session.member]
        if not self._groups[group]:
            del self._groups[group]
            self.hot -= session.common

    def _drop_copy(self, session: Session) -> None:
        self._kept.pop(session.member, None)
        self._spare.pop(session.member, None)
        self.warm -= session.copied
        session.copied = 0

    def _free_host(self) -> None:
        """Copies of what is also on the device go first, then the one that has been there longest."""
        if self._spare:
            self._drop_copy(self._sessions[next(iter(self._spare))])
        else:
            self.move(self._sessions[next(iter(self._kept))], "cold")
