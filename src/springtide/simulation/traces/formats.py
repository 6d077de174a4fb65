"""Which format a file has, by what its first line says."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from springtide.core.errors import UsageError
from springtide.simulation.traces import burstgpt, llmservingsim, mooncake, thunderagent, tracelab
from springtide.simulation.traces.lines import cells, first_line
from springtide.simulation.traces.trace import Trace

Reader = Callable[[Path], Trace]

SQLITE = b"SQLite format 3\0"


def read(path: Path) -> Trace:
    """The trace of a file. UsageError names what is wrong with it, or what was looked for."""
    found = reader(path)
    if found is None:
        raise UsageError(unknown(path))
    return found(path)


def reader(path: Path) -> Reader | None:
    """None if it is no trace that can be read. UsageError if it is no text at all."""
    with path.open("rb") as file:
        if file.read(len(SQLITE)) == SQLITE:
            raise UsageError(f"{path} is a database: to play a run again, name the run's folder.")
    text = first_line(path)
    if text.lstrip().startswith("{"):
        return _by_keys(text)
    columns = _columns(path, text)
    if columns >= tracelab.COLUMNS and columns & set(tracelab.NAMES):
        return tracelab.read
    if columns >= thunderagent.COLUMNS:
        return thunderagent.read_profiles
    return burstgpt.read if columns >= burstgpt.COLUMNS else None


def _columns(path: Path, text: str) -> set[str]:
    try:
        return set(cells(path, 1, text))
    except UsageError:
        return set()


def _by_keys(text: str) -> Reader | None:
    try:
        keys = set(msgspec.json.decode(text, type=dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, RecursionError):
        return None
    if keys >= mooncake.KEYS:
        return mooncake.read
    if keys >= thunderagent.KEYS:
        return thunderagent.read_stages
    return llmservingsim.read if any(keys >= each for each in llmservingsim.KEYS) else None


def unknown(path: Path) -> str:
    """A sentence for a file that no reader takes."""
    looked_for = {
        "TraceLab": tracelab.COLUMNS,
        "ThunderAgent": thunderagent.COLUMNS,
        "BurstGPT": burstgpt.COLUMNS,
    }
    keys = {
        "Mooncake": mooncake.KEYS,
        "ThunderAgent": thunderagent.KEYS,
        "LLMServingSim": llmservingsim.KEYS[0],
    }
    return (
        f"{path} is no trace that can be read: its first line has neither the columns of {_listed(looked_for)} (CSV), "
        f"nor the keys of {_listed(keys)} (JSON lines); bring it into one of these forms, which docs/simulation.md "
        "describes."
    )


def _listed(formats: dict[str, frozenset[str]]) -> str:
    return ", ".join(f"{name} ({', '.join(sorted(words))})" for name, words in formats.items())
