"""Mooncake: requests with hashes of their prefix blocks (https://github.com/kvcache-ai/Mooncake, `FAST25-release/`).

Equal `hash_ids` are equal prefixes, by blocks of 512 tokens, and are numbered as they first appear. So a request that
begins with all full blocks of an earlier one, the last of them new with it, goes on with that one's session.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from springtide.simulation.traces.lines import SECONDS_MAX, TOKENS_MAX, records
from springtide.simulation.traces.sessions import GUESSED_REUSE, NO_RESET, UNKNOWN, Session, Sessions, in_common
from springtide.simulation.traces.trace import Trace

FORMAT = "Mooncake"
KEYS = frozenset({"timestamp", "input_length", "output_length", "hash_ids"})
BLOCK = 512
"""Tokens per hash."""

CHAINED = "A request that begins with all full blocks of an earlier one is the next turn of the same session."
WITH_THE_MODEL = "The time from one request of a session to the next, the model's own included, is taken for latency."


class Request(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=SECONDS_MAX * 1000)]
    """Milliseconds."""
    input_length: Annotated[int, msgspec.Meta(ge=1, le=TOKENS_MAX)]
    output_length: Annotated[int, msgspec.Meta(ge=0, le=TOKENS_MAX)]
    hash_ids: list[int]

    @property
    def full(self) -> int:
        """Blocks that nothing can be added to."""
        return min(self.input_length // BLOCK, len(self.hash_ids))


def read(path: Path) -> Trace:
    sessions = Sessions()
    ends: dict[int, tuple[Session, Request]] = {}
    newest, first = -1, list[int]()
    for number, request in records(path, Request):
        if not sessions.room(number):
            break
        found = _earlier(ends, request)
        if found is None:
            session = sessions.begin(common=BLOCK * in_common(first, request.hash_ids))
            first = request.hash_ids
        else:
            session, before = ends.pop(found)
            session.wait((request.timestamp - before.timestamp) / 1000)
        sessions.add(session, context=request.input_length, output=request.output_length, kept=UNKNOWN)
        last = request.hash_ids[request.full - 1] if request.full else -1
        if last > newest:
            ends[last] = session, msgspec.structs.replace(request, hash_ids=[])
        newest = max(newest, *request.hash_ids, -1)
    return sessions.trace(path, FORMAT, (CHAINED, GUESSED_REUSE, WITH_THE_MODEL, NO_RESET))


def _earlier(ends: dict[int, tuple[Session, Request]], request: Request) -> int | None:
    """The block that ends the request which this one continues: the longest."""
    for block in reversed(request.hash_ids):
        if block in ends and ends[block][1].input_length < request.input_length:
            return block
    return None
