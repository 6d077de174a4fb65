"""Numbers of one console line: a Python dict as transformers prints it, or `step:5 - name:0.1 - name:0.2` as verl does.

Both are turned into JSON by replacing bytes and decoded at once, which is many times faster than parsing Python. What
does not survive that (nan, numpy's notation, a quote inside of a name) goes the slow way, pair by pair.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from springtide.diagnosis.readers.values import number

DICT = re.compile(rb"\{[^{}]*\}")
DICT_PAIR = re.compile(r"""['"]([^'"]+)['"]\s*:\s*(?:['"]([^'"]*)['"]|((?:[^,(}]|\([^)]*\))*))""")
STEP_BEFORE = re.compile(rb"(?:step|rollout|iteration|iter|update)\W{0,3}(\d{1,12})\W{0,3}$", re.IGNORECASE)
STEP_LINE = re.compile(rb"(?<![\w/])step:(\d{1,12}) - (.+)")
SIGNAL = re.compile(r"loss|reward|score|entropy|grad_norm|\bkl\b|accuracy|train_runtime|learning_rate|/lr\b")
"""What rows of training speak of, and dicts of settings do not."""

KNOWN: dict[str, str] = {}
"""One string per name, so that rows do not hold a copy each. It does not grow beyond `NAMES`."""

NAMES = 10_000
SHAPES: dict[tuple[str, ...], bool] = {}


def dicts(line: bytes) -> Iterator[tuple[int | None, dict[str, float]]]:
    """Flat dicts of a line that report training, with the step if the text before them says it."""
    for match in DICT.finditer(line):
        values = python_dict(match[0])
        if values and _reports(values):
            before = STEP_BEFORE.search(line[max(match.start() - 48, 0) : match.start()])
            yield (int(before[1]) if before else None), values


def step_line(line: bytes) -> tuple[int, dict[str, float]] | None:
    found = STEP_LINE.search(line)
    if found is None:
        return None
    body = found[2].rstrip()
    try:
        read = msgspec.json.decode(b'{"' + body.replace(b":", b'":').replace(b" - ", b',"') + b"}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        read = _pairs(body)
    return int(found[1]), _numbers(read)


def _pairs(body: bytes) -> dict[str, Any]:
    """A name may hold a colon, and a line may be cut in the middle of a pair."""
    found = {}
    for part in body.decode("utf-8", "replace").split(" - "):
        name, colon, value = part.rpartition(":")
        if colon and (read := number(value)) is not None:
            found[name] = read
    return found


def python_dict(text: bytes) -> dict[str, float]:
    try:
        read = msgspec.json.decode(text.replace(b"'", b'"'))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        read = {name: quoted or bare for name, quoted, bare in DICT_PAIR.findall(text.decode("utf-8", "replace"))}
    return _numbers(read) if isinstance(read, dict) else {}


def _numbers(read: dict[str, Any]) -> dict[str, float]:
    found = {}
    for name, value in read.items():
        if type(value) is not float:
            value = number(value)
            if value is None:
                continue
        found[KNOWN.get(name) or _remember(name)] = value
    return found


def _remember(name: str) -> str:
    if len(KNOWN) < NAMES:
        KNOWN[name] = name
    return name


def _reports(values: dict[str, float]) -> bool:
    shape = tuple(values)
    known = SHAPES.get(shape)
    if known is None:
        known = any(SIGNAL.search(name) for name in shape)
        if len(SHAPES) < NAMES:
            SHAPES[shape] = known
    return known
