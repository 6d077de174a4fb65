"""Turns that come one by one, put together to episodes."""

from collections.abc import Sequence
from pathlib import Path

from springtide.core.errors import UsageError
from springtide.simulation.script import Turn
from springtide.simulation.traces.trace import TURNS_MAX, Episode, Trace, sequences

UNKNOWN = None
"""How much of a context was in the one before."""

NO_RESET = "Starting an environment and grading take no time; every episode is rewarded with 1."
GUESSED_REUSE = (
    "Which tokens of a context were there before is a guess: all of them where it grew by at least the output before "
    "it, those before that output where it grew by less, none where it became shorter."
)
SHORTER_STARTS = "A context that is shorter than the one before begins another training sequence."


def in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Leading entries that are the same."""
    if one == other:
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


class Session:
    """One episode on its way. With `exact`, what is kept of earlier tokens is known token by token."""

    def __init__(self, *, common: int = 0, exact: bool = False) -> None:
        self.turns: list[Turn] = []
        self.common = common
        self.reset = 0.0
        self._exact = exact

    def add(self, *, context: int, output: int, kept: int | None, latency: float = 0.0) -> None:
        """`context` is at least 1; `kept` of its leading tokens are those of the turn before, or of its output."""
        reusable = 0
        if self.turns:
            before = self.turns[-1]
            whole = before.context + before.output
            if kept is UNKNOWN:
                kept = whole if context >= whole else before.context if context >= before.context else 0
            reusable = min(kept, whole, context - 1)
        self.turns.append(Turn(context, reusable, output, latency))

    def wait(self, seconds: float) -> None:
        """After the last turn, beyond what is known."""
        if self.turns:
            self.turns[-1] = self.turns[-1]._replace(latency=self.turns[-1].latency + max(0.0, seconds))

    def episode(self) -> Episode:
        turns = tuple(self.turns)
        return Episode(turns, sequences(turns, exact=self._exact), common=self.common, reset=self.reset)


class Sessions:
    """In the order in which they began; those that nothing is sampled in do not count."""

    def __init__(self) -> None:
        self._begun: list[Session] = []
        self._read = 0
        self._silent = 0
        self._stopped: int | None = None

    def begin(self, *, common: int = 0, exact: bool = False) -> Session:
        session = Session(common=common, exact=exact)
        self._begun.append(session)
        return session

    def add(self, session: Session, *, context: int, output: int, kept: int | None, latency: float = 0.0) -> None:
        """A turn without output is left out, and its latency comes after the turn before."""
        if output == 0:
            self._silent += 1
            session.wait(latency)
            return
        session.add(context=context, output=output, kept=kept, latency=latency)

    def room(self, line: int) -> bool:
        """Whether the turn of this line is still to be read."""
        if self._read == TURNS_MAX:
            self._stopped = line
            return False
        self._read += 1
        return True

    def trace(self, path: Path, kind: str, assumptions: Sequence[str]) -> Trace:
        """UsageError if there is no turn."""
        episodes = [session.episode() for session in self._begun if session.turns]
        if not episodes:
            raise UsageError(f"{path}: no turn of this {kind} trace has any output; name a longer one.")
        told = list(assumptions)
        if self._silent:
            told.append(f"{self._silent:,} turns without output are left out.")
        if self._stopped is not None:
            told.append(f"Only the first {self._read:,} turns are read, those before line {self._stopped}.")
        return Trace(
            name=path.name,
            format=kind,
            slots=tuple((episode,) for episode in episodes),
            assumptions=tuple(told),
        )
