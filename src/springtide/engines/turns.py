"""Which turns run and which wait.

Invariants: turns are admitted in order of submission, except that one whose group is just computing the same prompt
waits for that and lets others pass; a running session has a block for all its tokens. When running sequences alone
outgrow the capacity the newest gives way, so the oldest always gets on.
"""

from bisect import insort

from springtide.engines.blocks import block_length
from springtide.engines.counters import Counters
from springtide.engines.residency import ResidentSessions
from springtide.engines.session import Session, common_prefix

HEADROOM = 64
"""Tokens that a turn's block has room for beyond its prompt when it starts; more is added as it grows."""


def reserved(tokens: int) -> int:
    """Tokens of the capacity that a session's block takes, about: it was given when its last turn had fewer."""
    return block_length(tokens + HEADROOM) if tokens else 0


class Turns:
    def __init__(self, residents: ResidentSessions, counters: Counters, *, max_batch: int, max_context: int) -> None:
        self._residents = residents
        self._counters = counters
        self._max_batch = max_batch
        self._max_context = max_context
        self.waiting: list[Session] = []
        self.running: list[Session] = []

    @staticmethod
    def order(session: Session) -> int:
        assert session.turn is not None
        return session.turn.order

    def enqueue(self, session: Session) -> None:
        insort(self.waiting, session, key=self.order)

    def drop(self, session: Session) -> None:
        """Take a session's turn out, wherever it is."""
        if session.running:
            self._stop_running(session)
        elif session.turn is not None:
            self.waiting.remove(session)
        session.turn = None

    def admit(self, version: int) -> None:
        """Start waiting turns while there is room. `version` is the policy version that new KV is computed under."""
        passed: list[Session] = []
        while self.waiting and len(self.running) < self._max_batch:
            session = self.waiting[0]
            source, shared = self.best_source(session, version)
            if self._is_coming(session, max(shared, session.computed)):
                passed.append(self.waiting.pop(0))
            elif self._start(session, source, shared, version):
                session.running = True
                insort(self.running, self.waiting.pop(0), key=self.order)
            else:
                break
        self.waiting = passed + self.waiting

    def grow(self) -> None:
        """Give every running session a block for all its tokens, the oldest first."""
        for session in list(self.running):
            block = session.block
            if block is not None and block.length >= len(session.tokens):
                continue
            while session.running and not self._residents.make_hot(session, len(session.tokens)):
                self._preempt(self.running[-1])

    def suspend(self) -> None:
        """Nothing runs, and nothing is on the device; the oldest turns' KV gets the room in host memory first."""
        for session in list(self.running):
            self._preempt(session)

    def _start(self, session: Session, source: Session | None, shared: int, version: int) -> bool:
        turn = session.turn
        assert turn is not None
        headroom = min(turn.remaining, HEADROOM)
        if not self._residents.make_hot(session, min(len(session.tokens) + headroom, self._max_context)):
            return False
        if source is not None and shared > session.computed and source.residency != "cold":
            self._residents.copy_prefix(source, session, shared)
            session.adopt(shared, version)
        if not turn.started:
            turn.started = True
            self._counters.reused += session.computed
        return True

    def _stop_running(self, session: Session) -> None:
        self.running.remove(session)
        session.running = False

    def _preempt(self, session: Session) -> None:
        self._stop_running(session)
        self._residents.move_out(session)
        self._counters.preemptions += 1
        self.enqueue(session)

    def best_source(self, session: Session, version: int) -> tuple[Session | None, int]:
        """The group mate with the longest beginning of `session`'s tokens under `version`, and its length."""
        source, shared = None, 0
        # The newest token is always computed: its logits are wanted.
        wanted = session.tokens[:-1]
        for mate in self._residents.mates(session):
            session.known = max(session.known, common_prefix(mate.tokens[: mate.known], wanted))
            length = mate.shared_with(wanted, version)
            if length > shared:
                source, shared = mate, length
        return source, shared

    def _is_coming(self, session: Session, shared: int) -> bool:
        """Whether a running mate is about to compute more of `session`'s tokens than can be had now."""
        wanted = session.tokens[:-1]
        return any(
            mate.running and mate.pending > 1 and common_prefix(mate.tokens, wanted) > shared
            for mate in self._residents.mates(session)
        )
