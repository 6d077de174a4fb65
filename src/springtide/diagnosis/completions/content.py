"""Text and numbers out of whatever JSON a dump holds. Nothing here raises: what is not of the form gives nothing."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

Row = Mapping[str, Any]


def text_of(value: Any) -> str:
    """A string, a chat message, a list of either, or of content parts, as one text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _message(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return "\n".join(text for item in value if (text := text_of(item)))
    return ""


def _message(message: Mapping[str, Any]) -> str:
    """Its content, what it thought, and the calls that it makes; images and numbers are left out."""
    parts = [message.get(key) for key in ("reasoning_content", "thinking", "content", "text")]
    calls = message.get("tool_calls")
    if isinstance(calls, Sequence) and not isinstance(calls, str):
        parts += [_call(call) for call in calls]
    return "\n".join(text for part in parts if (text := text_of(part)))


def _call(call: Any) -> str:
    if not isinstance(call, Mapping):
        return text_of(call)
    inner = call.get("function", call)
    if not isinstance(inner, Mapping):
        return text_of(inner)
    arguments = inner.get("arguments", "")
    shown = text_of(list(arguments.values())) if isinstance(arguments, Mapping) else text_of(arguments)
    return f"{text_of(inner.get('name'))} {shown}".strip()


def number(value: Any) -> float | None:
    """A finite number, also where it is written as text or as a truth value."""
    if isinstance(value, str | int | float):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            return None
        return found if isfinite(found) else None
    return None


def whole(value: Any) -> int | None:
    found = number(value)
    return int(found) if found is not None and abs(found) < 2**53 else None


def truth_value(value: Any) -> bool | None:
    found = number(value)
    return None if found is None else found != 0


def first(row: Row, keys: Iterable[str]) -> Any:
    """The value of the first of `keys` that `row` has, None being none."""
    return next((row[key] for key in keys if row.get(key) is not None), None)


def table(value: Any) -> Row:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def numbers(row: Row, *, without: Iterable[str] = ()) -> dict[str, float]:
    """All plain numbers of `row`."""
    skipped = set(without)
    found = {
        key: number(value)
        for key, value in row.items()
        if key not in skipped and isinstance(value, int | float) and isinstance(key, str)
    }
    return {key: value for key, value in found.items() if value is not None}
