"""BurstGPT: requests to a chat service as a CSV (https://github.com/HPMLL/BurstGPT, `data/`).

Newer files say which requests are of one conversation and how long the service took; older ones do not.
"""

from pathlib import Path

from springtide.simulation.traces.lines import rows
from springtide.simulation.traces.sessions import GUESSED_REUSE, NO_RESET, SHORTER_STARTS, UNKNOWN, Session, Sessions
from springtide.simulation.traces.trace import Trace

FORMAT = "BurstGPT"
COLUMNS = frozenset({"Timestamp", "Request tokens", "Response tokens"})

ALONE = "Requests that name no conversation are episodes of a single turn."
THINKING = "The time from an answer to the next request of its conversation is taken for latency."


def read(path: Path) -> Trace:
    """Each conversation is an episode."""
    sessions = Sessions()
    known: dict[str, tuple[Session, float]] = {}
    for row in rows(path):
        if not sessions.room(row.number):
            break
        name = row.text("Session ID")
        begun = row.number_at("Timestamp", most=1e12)
        taken = row.number_at("Elapsed time") if row.text("Elapsed time") else 0.0
        session, answered = known.get(name, (None, 0.0)) if name else (None, 0.0)
        if session is None:
            session = sessions.begin()
        session.wait(begun - answered)
        sessions.add(
            session,
            context=max(1, row.whole("Request tokens")),
            output=row.whole("Response tokens"),
            kept=UNKNOWN,
        )
        if name:
            known[name] = session, begun + taken
    return sessions.trace(path, FORMAT, (ALONE, GUESSED_REUSE, THINKING, SHORTER_STARTS, NO_RESET))
