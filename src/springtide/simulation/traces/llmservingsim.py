"""LLMServingSim: sessions of chained calls, or single requests, as JSON lines (https://github.com/casys-kaist/LLMServingSim,
`docs/docs/workloads/`). Token ids are optional; where they are there, what is reused is known."""

from pathlib import Path
from typing import Annotated

import msgspec

from springtide.simulation.traces.lines import SECONDS_MAX, TOKENS_MAX, bad, records
from springtide.simulation.traces.sessions import GUESSED_REUSE, NO_RESET, SHORTER_STARTS, UNKNOWN, Sessions, in_common
from springtide.simulation.traces.trace import Trace

FORMAT = "LLMServingSim"
KEYS = (frozenset({"sub_requests"}), frozenset({"input_toks", "output_toks"}))
"""Of a session and of a single request; a file may have both."""

Tokens = Annotated[int, msgspec.Meta(ge=0, le=TOKENS_MAX)]


class Call(msgspec.Struct):
    input_toks: Tokens
    output_toks: Tokens
    tool_duration_ns: Annotated[int, msgspec.Meta(ge=0, le=int(SECONDS_MAX * 1e9))] = 0
    """After the call."""
    input_tok_ids: list[int] = []
    output_tok_ids: list[int] = []


class Line(msgspec.Struct):
    sub_requests: list[Call] | None = None
    input_toks: Tokens | None = None
    output_toks: Tokens | None = None
    input_tok_ids: list[int] = []


def read(path: Path) -> Trace:
    sessions, guessed = Sessions(), False
    first: list[int] = []
    for number, line in records(path, Line):
        calls = _calls(line)
        if calls is None:
            raise bad(path, number, "there is neither sub_requests nor input_toks and output_toks")
        if not calls:
            continue
        exact = all(call.input_tok_ids for call in calls)
        guessed = guessed or (not exact and len(calls) > 1)
        session = sessions.begin(common=in_common(first, calls[0].input_tok_ids), exact=exact)
        first, before = calls[0].input_tok_ids, list[int]()
        for call in calls:
            if not sessions.room(number):
                break
            sessions.add(
                session,
                context=max(1, call.input_toks),
                output=call.output_toks,
                kept=in_common(before, call.input_tok_ids) if exact else UNKNOWN,
                latency=call.tool_duration_ns / 1e9,
            )
            before = call.input_tok_ids + call.output_tok_ids
        else:
            continue
        break
    return sessions.trace(path, FORMAT, (*((GUESSED_REUSE, SHORTER_STARTS) if guessed else ()), NO_RESET))


def _calls(line: Line) -> list[Call] | None:
    if line.sub_requests is not None:
        return line.sub_requests
    if line.input_toks is None or line.output_toks is None:
        return None
    return [Call(line.input_toks, line.output_toks, input_tok_ids=line.input_tok_ids)]
