"""Who may keep KV on the device, who is moved to host memory, who keeps only tokens.

Invariants: the tokens of all blocks never exceed the capacity, those of all host copies never the host capacity;
a session whose turn is running is only moved by the engine itself. Room is made by moving out the paused session
that was used longest ago.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Literal

from springtide.core.kv_versions import KvVersions
from springtide.core.member import Member
from springtide.engines.blocks import Block, Blocks, block_length
from springtide.engines.session import Session
from springtide.engines.storage import Storage


class ResidentSessions:
    def __init__(self, storage: Storage, blocks: Blocks, *, host_capacity: int) -> None:
        self._storage = storage
        self._blocks = blocks
        self._host_capacity = host_capacity
        self._sessions: dict[Member, Session] = {}
        self._groups: dict[tuple[str, int], dict[Member, Session]] = {}
        self._clock = 0
        self.host_tokens = 0
        self.demotions = 0
        self.reloads = 0
        self.reloaded = 0
        self.reload_seconds = 0.0

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, member: Member) -> Session | None:
        return self._sessions.get(member)

    def add(self, session: Session) -> None:
        member = session.member
        self._sessions[member] = session
        self._groups.setdefault((member.purpose, member.group), {})[member] = session

    def remove(self, session: Session) -> None:
        member = session.member
        self.forget(session)
        del self._sessions[member]
        mates = self._groups[member.purpose, member.group]
        del mates[member]
        if not mates:
            del self._groups[member.purpose, member.group]

    def give_away(self, session: Session) -> None:
        """It leaves with its tokens and a host copy of its KV, if there is host memory."""
        computed, versions, host = session.computed, session.versions, session.host
        if session.block is not None and self._host_capacity:
            host = self._storage.save(session.block, computed)
        session.versions = KvVersions()
        self.remove(session)
        if host is not None:
            session.computed, session.versions, session.host = computed, versions, host

    def adopt(self, session: Session) -> None:
        """One that another engine has given away; cold where host memory has no room."""
        if session.host is not None and self.host_tokens + session.computed <= self._host_capacity:
            session.host_tokens = session.computed
            self.host_tokens += session.host_tokens
        else:
            session.lose()
        self.add(session)
        self.touch(session)

    def mates(self, session: Session) -> Iterable[Session]:
        """The other sessions of the group, in order of their first request."""
        member = session.member
        return (mate for mate in self._groups[member.purpose, member.group].values() if mate is not session)

    def make_hot(self, session: Session, tokens: int) -> bool:
        """Give `session` a block for `tokens` tokens with its KV in it, moving paused sessions out if need be.

        False if running sessions leave no such block; the session keeps its KV then, though perhaps in another block.
        """
        old = session.block
        if old is not None and old.length >= block_length(tokens):
            return True
        block = self._blocks.allocate(tokens)
        while block is None:
            victim = self._next_victim(session)
            if victim is None:
                return old is not None and self._relocate(session, tokens)
            self.move_out(victim)
            block = self._blocks.allocate(tokens)
        self._bring_in(session, block)
        return True

    def _bring_in(self, session: Session, block: Block) -> None:
        old, session.block = session.block, block
        if old is not None:
            self._storage.copy(old, block, session.computed)
            self._blocks.free(old)
        elif session.host is not None:
            started = time.perf_counter()
            self._storage.load(session.host, block, session.computed)
            self.reload_seconds += time.perf_counter() - started
            self.reloads += 1
            self.reloaded += session.computed
            self._drop_host(session)

    def _relocate(self, session: Session, tokens: int) -> bool:
        """Look for a larger block that includes the session's own; it stays hot either way."""
        assert session.block is not None
        saved = self._storage.save(session.block, session.computed)
        self._blocks.free(session.block)
        larger = self._blocks.allocate(tokens)
        session.block = larger or self._blocks.allocate(session.block.length)
        assert session.block is not None, "what was freed can be had again"
        self._storage.load(saved, session.block, session.computed)
        return larger is not None

    def touch(self, session: Session) -> None:
        """Mark as used last."""
        self._clock += 1
        session.last_used = self._clock

    def demote(self, session: Session, to: Literal["warm", "cold"]) -> None:
        """Move a paused session out; to cold also where host memory has no room."""
        if session.residency == "hot" and to == "warm":
            self.move_out(session)
        elif to == "cold" and session.residency != "cold":
            self.forget(session)
            self.demotions += 1

    def prefetch(self, session: Session) -> None:
        """Bring a warm session back if a block is free anyway."""
        if session.residency == "warm":
            block = self._blocks.allocate(session.computed)
            if block is not None:
                self._bring_in(session, block)

    def place(self, session: Session, block: Block) -> None:
        """Move a hot session to `block`, of its block's length, if it is free or held by one that does not run."""
        old = session.block
        assert old is not None
        holder = next((each for each in self if each.block == block), None)
        if holder is not None and not holder.running:
            self._storage.swap(old, block, max(session.computed, holder.computed))
            session.block, holder.block = block, old
        elif holder is None and self._blocks.take(block):
            self._bring_in(session, block)

    def copy_prefix(self, source: Session, target: Session, tokens: int) -> None:
        """Give hot `target` the first `tokens` tokens of `source`'s KV."""
        assert target.block is not None
        if source.block is not None:
            self._storage.copy(source.block, target.block, tokens)
        else:
            assert source.host is not None
            self._storage.load(source.host, target.block, tokens)

    def move_out(self, session: Session) -> None:
        """Hot to warm where host memory allows, else to cold."""
        if session.computed and self.host_tokens + session.computed <= self._host_capacity:
            assert session.block is not None
            session.host = self._storage.save(session.block, session.computed)
            session.host_tokens = session.computed
            self.host_tokens += session.host_tokens
            self._blocks.free(session.block)
            session.block = None
        else:
            self.forget(session)
        self.demotions += 1

    def forget(self, session: Session) -> None:
        """Drop the KV, keep the tokens."""
        if session.block is not None:
            self._blocks.free(session.block)
            session.block = None
        self._drop_host(session)
        session.truncate(0)

    def _drop_host(self, session: Session) -> None:
        self.host_tokens -= session.host_tokens
        session.host, session.host_tokens = None, 0

    def _next_victim(self, wanting: Session) -> Session | None:
        """The paused session used longest ago; when there is none, of those that wait for a turn the last in line."""
        candidates = [s for s in self if s.block is not None and not s.running and s is not wanting]
        return min(candidates, key=lambda s: (0, s.last_used) if s.turn is None else (1, -s.turn.order), default=None)
