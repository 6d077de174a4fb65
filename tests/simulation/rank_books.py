"""Books beside one modelled rank: capacity, versions, and turns that are neither lost nor kept waiting for nothing."""

from collections.abc import Callable
from typing import Any

from simulation.invariants import Books, Counts, check, merged
from springtide.core.member import Member
from springtide.core.sampling import SampleRequest
from springtide.core.version import PolicyVersion
from springtide.ports.engine import Finished, HandedOver
from springtide.simulation.engine import ModelledEngine

INNER = ("submit", "step", "cancel", "demote", "prefetch", "refresh", "hand_over", "take_over")


class RankBooks:
    """Stands between the rank and its engine. `kv`: what becomes of KV at new weights, `gap`: how old it may become.

    `held`: whether ready turns are held back from the engine. What each running turn samples is counted here too, with
    the version that was loaded last, however the engine does its own books. `after` is called after each visit, and
    `proves` says what the rank proves of new weights.
    """

    def __init__(
        self,
        engine: ModelledEngine,
        books: Books,
        *,
        kv: str,
        gap: int,
        held: Callable[[], bool],
        after: Callable[[ModelledEngine], None] = lambda engine: None,
        proves: Callable[[PolicyVersion], PolicyVersion] = lambda proof: proof,
    ) -> None:
        self.visits = 0
        self.dead = False
        self._after, self._proves, self._proven = after, proves, True
        self._engine, self._books, self._kv, self._held = engine, books, kv, held
        self._gap = 0 if kv == "recompute" else gap
        self._memory = engine._memory
        self._open: dict[Member, SampleRequest] = {}
        self._loaded = 0
        self._sampled: dict[Member, Counts] = {}
        self._computed: set[int] = set()
        self._inner = {name: getattr(engine, name) for name in INNER}
        self._load, self._shared = engine.load_weights, self._memory.shared
        for name in (*self._inner, "load_weights"):
            setattr(engine, name, getattr(self, name))
        self._memory.shared = self.shared  # type: ignore[method-assign]

    @property
    def busy(self) -> bool:
        """Whether a turn is here."""
        return bool(self._open)

    def submit(self, requests: list[SampleRequest]) -> None:
        check(not self.dead, "I8", f"turns are given to a dead rank: {requests}")
        check(self._proven, "I5", f"{requests} are to be sampled from weights that were not proven")
        for request in requests:
            check(request.member not in self._open, "I1", f"{request.member} asks for two turns at once")
            self._open[request.member] = request
        self._inner["submit"](requests)

    def step(self, *, max_decode_steps: int) -> list[Finished]:
        check(not self.dead, "I8", "a dead rank is at work")
        self.visits += 1
        engine = self._engine
        finished: list[Finished] = self._inner["step"](max_decode_steps=max_decode_steps)
        self._count(finished)
        for turn in finished:
            check(turn.member in self._open, "I1", f"{turn.member} ends a turn that nobody asked for")
            del self._open[turn.member]
        queued = {request.member for request in engine._queue}
        known = queued | set(engine._batch) | set(engine._arriving)
        check(set(self._open) == known, "I8", f"turns are lost: {set(self._open) ^ known}")
        waiting = bool(queued) or self._held()
        works = bool(finished) or bool(engine._batch) or bool(engine._arriving) or sum(engine.spent.values()) > 0
        check(works or not waiting, "I8", "turns wait, and the rank does nothing")
        self._look()
        self._after(engine)
        return finished

    def cancel(self, member: Member) -> None:
        self._inner["cancel"](member)
        self._open.pop(member, None)
        self._sampled.pop(member, None)
        self._look()

    def demote(self, member: Member, to: str) -> None:
        check(member not in self._open, "I10", f"KV of {member} is to be moved while its turn runs")
        self._inner["demote"](member, to)
        self._look()

    def hand_over(self, member: Member) -> HandedOver | None:
        check(member not in self._open, "I10", f"KV of {member} leaves while its turn runs")
        handed: HandedOver | None = self._inner["hand_over"](member)
        check(self._memory.get(member) is None, "I7", f"{member} has left, and its KV is still there")
        self._look()
        return handed

    def take_over(self, member: Member, handed: HandedOver) -> int:
        check(self._memory.get(member) is None, "I5", f"{member} comes with KV, and has some here")
        check(self._engine._evicts == "warm", "I7", f"the KV of {member} comes by a host memory that nobody uses")
        self._computed |= {version for version, _ in handed.session[1]._runs}
        taken: int = self._inner["take_over"](member, handed)
        check(taken in (0, handed.tokens), "I5", f"{member} comes with {handed.tokens} tokens, and {taken} arrive")
        self._look()
        return taken

    def prefetch(self, member: Member) -> None:
        self._inner["prefetch"](member)
        self._look()

    def refresh(self, member: Member, tokens: int) -> int:
        check(self._kv == "refresh", "I5", f"KV of {member} is refreshed")
        engine = self._engine
        busy = engine._queue or engine._batch or engine._arriving or self._held()
        check(not busy, "I8", f"KV of {member} is refreshed while turns wait or run")
        check(member not in self._open, "I10", f"KV of {member} is refreshed while its turn runs")
        before = engine.stats()
        done: int = self._inner["refresh"](member, tokens)
        after = engine.stats()
        check(done > 0, "I8", f"there was nothing to refresh for {member}")
        check(after.refreshed - before.refreshed <= tokens, "I8", "a piece is larger than was asked for")
        check(after.hot_tokens == before.hot_tokens, "I7", "a refresh takes room")
        if done > after.refreshed - before.refreshed:
            check(self._loaded in self._computed, "I5", f"{member} copies what nobody has computed")
        self._computed.add(self._loaded)
        self._look()
        return done

    def load_weights(self, *, number: int, weights: Any, kv: Any) -> PolicyVersion:
        proof = self._load(number=number, weights=weights, kv=kv)
        check(kv == self._kv, "I5", f"KV is treated as {kv}")
        check(number >= self._loaded, "I4", f"version {number} is loaded after {self._loaded}")
        self._loaded = number
        if kv == "recompute":
            memory = self._memory
            kept = [str(who) for who, session in memory._sessions.items() if session.kv or session.place != "cold"]
            check(not kept and not memory.hot and not memory.warm, "I5", f"KV of {kept} is left at version {number}")
        self._look()
        self._proven = self._proves(proof) == proof
        return proof if self._proven else PolicyVersion(proof.number, "something else")

    def shared(self, member: Member, *, prefix: int, shared: int, version: int) -> int:
        held = self._shared(member, prefix=prefix, shared=shared, version=version)
        fresh = self._loaded not in self._computed
        self._computed.add(self._loaded)
        check(not held or not fresh, "I5", f"{member} reuses what nobody has computed under version {self._loaded}")
        return held

    def _count(self, finished: list[Finished]) -> None:
        """What this visit sampled, turn by turn."""
        engine = self._engine
        totals = {who: _tokens(running.versions) for who, running in engine._batch.items()}
        for who, running in engine._batch.items():
            totals[who] += engine._steps - running.since
        totals |= {who: _tokens(counts) for who, counts in engine._partial.items() if who not in engine._batch}
        totals |= {turn.member: turn.sampled.length for turn in finished}
        for who, total in totals.items():
            new = total - _tokens(self._sampled.get(who, []))
            check(new >= 0, "I4", f"{-new} tokens of {who} are lost")
            if new:
                self._sampled[who] = merged([*self._sampled.get(who, []), (self._loaded, new)])
        for turn in finished:
            ours = self._sampled.pop(turn.member, [])
            theirs = merged(turn.sampled.counts)  # type: ignore[attr-defined]
            check(ours == theirs, "I4", f"{turn.member} has {theirs}, and the versions served were {ours}")

    def _look(self) -> None:
        """At the memory."""
        memory, engine = self._memory, self._engine
        check(0 <= memory.hot <= memory.capacity, "I7", f"{memory.hot} tokens on a device for {memory.capacity}")
        check(0 <= memory.warm <= memory.host, "I7", f"{memory.warm} tokens in host memory for {memory.host}")
        hot = [session for session in memory._sessions.values() if session.place == "hot"]
        grown = sum(engine._steps - running.begun for running in engine._batch.values())
        common = {session.member.group: session.common for session in hot}
        held = sum(session.own for session in hot) + sum(common.values()) + grown
        check(memory.hot == held, "I7", f"{memory.hot} tokens are booked and {held} on the device")
        copied = sum(session.copied for session in memory._sessions.values())
        check(memory.warm == copied, "I7", f"{memory.warm} tokens are booked and {copied} in host memory")
        resting = [s for who, s in memory._sessions.items() if who not in engine._batch and who not in engine._arriving]
        wrong = [str(s.member) for s in resting if s.versions.tokens != s.kv]
        check(not wrong, "I5", f"the KV of {wrong} has versions for another number of tokens")
        at_work = [*engine._batch, *engine._arriving]
        looked_at = memory._sessions if self._kv == "recompute" else at_work
        old = [str(who) for who in looked_at if memory[who].versions.gap(self._loaded) > self._gap]
        check(not old, "I5", f"{old} have KV of too old a version at {self._loaded}")


def _tokens(counts: Counts) -> int:
    return sum(tokens for _, tokens in counts)
