"""Which framework wrote a log: whose keys its rows have.

A framework is possible if a key of its signature is there. Among those that are possible the one whose table explains
most keys wins; keys that only few frameworks have weigh more, so that a common name decides nothing.
"""

from collections.abc import Iterable

from springtide.diagnosis.alias import AliasTable, tables
from springtide.diagnosis.keys import KeyMap
from springtide.diagnosis.log import Log
from springtide.diagnosis.readers.head import head

GENERIC = "generic"
SIGNATURE_WEIGHT = 3.0
"""A hit of the signature against a key that the table knows."""

ROWS = 2000
"""Rows whose keys are looked at, half from the beginning and half from the end."""


def identify(log: Log) -> AliasTable:
    """The table of its framework, or the generic one."""
    by_name = {table.framework: table for table in tables()}
    if log.framework is not None and log.framework in by_name:
        return by_name[log.framework]
    if not log.rows:
        return _by_traces(log) or by_name[GENERIC]
    return identify_keys(keys_of(log))


def _by_traces(log: Log) -> AliasTable | None:
    """From what a run printed that ended before its first row."""
    if not log.source.is_file():
        return None
    text = head(log.source)
    counts = {table.framework: sum(text.count(trace.encode()) for trace in table.traces) for table in tables()}
    best = max(counts, key=counts.__getitem__)
    return next(table for table in tables() if table.framework == best) if counts[best] else None


def keys_of(log: Log) -> set[str]:
    rows = log.rows if len(log.rows) <= ROWS else log.rows[: ROWS // 2] + log.rows[-ROWS // 2 :]
    return {name for row in rows for name in row.values}


def identify_keys(keys: Iterable[str]) -> AliasTable:
    names = set(keys)
    best, best_score = None, 0.0
    for table in tables():
        if table.framework == GENERIC:
            continue
        score = _score(table, names)
        if score > best_score:
            best, best_score = table, score
    return best or next(table for table in tables() if table.framework == GENERIC)


def _score(table: AliasTable, names: set[str]) -> float:
    keys = KeyMap(table)
    bare = {keys.bare(name) for name in names}
    hits = sum(any(_is_signed(name, sign) for name in bare) for sign in table.signature)
    if not hits:
        return 0.0
    return SIGNATURE_WEIGHT * hits + sum(bool(keys.find(name)) for name in names)


def _is_signed(name: str, sign: str) -> bool:
    return name.startswith(sign) if sign.endswith("/") else name == sign
