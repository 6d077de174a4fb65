"""TraceLab: sessions of coding agents as a CSV of rounds (https://github.com/uw-syfi/TraceLab, `replay/`).

`prefix_len` tokens of a round's context were there before, `input_len` are new; `tool_wait_after_ms` follows it.
"""

from pathlib import Path

from springtide.simulation.traces.lines import Row, rows
from springtide.simulation.traces.sessions import NO_RESET, SHORTER_STARTS, Sessions
from springtide.simulation.traces.trace import Trace

FORMAT = "TraceLab"
COLUMNS = frozenset({"round_idx", "prefix_len", "input_len", "output_len", "tool_wait_after_ms"})
NAMES = ("session_id", "id")
"""Columns of which one names the session."""

CACHED_FIRST = "What was cached before a session's first round is taken for a beginning that all sessions share."


def read(path: Path) -> Trace:
    sessions = Sessions()
    rounds: dict[str, list[tuple[int, Row]]] = {}
    for row in rows(path):
        if not sessions.room(row.number):
            break
        name = row.text(NAMES[0]) or row.text(NAMES[1])
        rounds.setdefault(name, []).append((row.whole("round_idx"), row))
    for found in rounds.values():
        found.sort(key=lambda pair: pair[0])
        session = sessions.begin(common=found[0][1].whole("prefix_len"))
        for _, row in found:
            kept = row.whole("prefix_len")
            sessions.add(
                session,
                context=max(1, kept + row.whole("input_len")),
                output=row.whole("output_len"),
                kept=kept,
                latency=row.number_at("tool_wait_after_ms", most=1e12) / 1000,
            )
    return sessions.trace(path, FORMAT, (CACHED_FIRST, SHORTER_STARTS, NO_RESET))
