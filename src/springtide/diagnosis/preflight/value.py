"""What a word on a command line means."""

import ast
import json
from typing import Any

WORDS = {"true": True, "false": False, "null": None, "none": None, "~": None}


def plain_value(word: str) -> Any:
    """A number, a truth value, None, a list or a table; else the word itself."""
    text = word.strip()
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text[:1] in "[{(\"'":
        for parse in (json.loads, ast.literal_eval):
            try:
                return parse(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
        if text.startswith("[") and text.endswith("]"):
            return [plain_value(part) for part in text[1:-1].split(",")] if len(text) < 10_000 else text
    return text


def as_number(value: Any) -> float | None:
    """A number that is one; text that reads as one counts."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        value = plain_value(value)
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else None


def as_truth(value: Any) -> bool | None:
    if isinstance(value, str):
        value = plain_value(value)
    if isinstance(value, bool):
        return value
    return bool(value) if isinstance(value, int) else None
