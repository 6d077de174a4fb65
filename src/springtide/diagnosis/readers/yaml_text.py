"""Settings in a YAML file, as far as settings go: nested names with plain values, by dotted name.

Anchors, tags, flow mappings and lists of mappings are stepped over; no part of the file is ever run or instantiated.
"""

import re
from typing import Any

from springtide.diagnosis.readers.console_settings import scalar

LINE = re.compile(r"^(?P<indent> *)(?P<name>[^\s:#'\"\[{&*-][^:#]*|'[^']*'|\"[^\"]*\"):(?: +(?P<value>.*))?$")
LONGEST = 100_000
"""Lines that are read."""


def settings_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    stack: list[tuple[int, str]] = []
    block: int | None = None
    for line in text.splitlines()[:LONGEST]:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip(" "))
        if block is not None and indent > block:
            continue
        block = None
        match = LINE.match(line)
        if match is None:
            continue
        while stack and stack[-1][0] >= indent:
            stack.pop()
        stack.append((indent, match["name"].strip().strip("'\"")))
        value = _without_comment(match["value"] or "")
        if value[:1] in ("|", ">"):
            block = indent
        elif value and value[:1] not in ("&", "*", "!", "{"):
            found[".".join(name for _, name in stack)] = scalar(value)
    return found


def _without_comment(value: str) -> str:
    if value[:1] in ("'", '"'):
        end = value.find(value[0], 1)
        return value[: end + 1] if end > 0 else value
    return value.split(" #", 1)[0].strip()
