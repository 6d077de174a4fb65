"""Numbers of one console line: a Python dict as transformers prints it, or `step:5 - name:0.1 - name:0.2` as verl does.

Both are turned into JSON by replacing bytes and decoded at once, which is many times faster than parsing Python. What
does not survive that (a None, a quote inside of a name) goes the slow way, pair by pair.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from springtide.diagnosis.readers.values import number

DICT = re.compile(rb"\{[^{}]*\}")
DICT_PAIR = re.compile(r"""['"]([^'"]+)['"]\s*:\s*(?:['"]([^'"]*)['"]|((?:[^,(}]|\([^)]*\))*))""")
NOT_FINITE = re.compile(rb"(?<=[ :])-?(?:nan|inf)\b")
WRAPPED = re.compile(rb"(?:np|numpy)\.\w+\(([-+.\deEnaif]+)\)")
STEP_BEFORE = re.compile(rb"(?:step|rollout|iteration|iter|update)\W{0,3}(\d{1,12})\W{0,3}$", re.IGNORECASE)
STEP_INSIDE = re.compile(rb"'global_step/max_steps': '(\d{1,12})/")
STEP_LINE = re.compile(rb"(?<![\w/])step:(\d{1,12}) - (.+)")
SIGNAL = re.compile(r"loss|reward|score|entropy|grad_norm|\bkl\b|accuracy|train_runtime|learning_rate|/lr\b")
"""What rows of training speak of, and dicts of settings do not."""

LONGEST = 1 << 16
"""Bytes of a row; what is longer is none."""

DECODER = msgspec.json.Decoder(dict[str, float], strict=False)
"""Takes numbers in quotes as well."""


class Shape(NamedTuple):
    """`names`: the one copy that all rows with these names share. `reports`: whether they speak of training."""

    names: tuple[str, ...]
    reports: bool


SHAPES: dict[tuple[str, ...], Shape] = {}
MOST_SHAPES = 1000


def dicts(line: bytes) -> Iterator[tuple[int | None, dict[str, float]]]:
    """Flat dicts of a line that report training, with the step if the text before them says it."""
    for match in DICT.finditer(line):
        read = _python_dict(match[0])
        shape = _shape(read)
        if shape.reports:
            before = STEP_BEFORE.search(line, max(match.start() - 48, 0), match.start())
            said = before or (STEP_INSIDE.search(match[0]) if b"/max_steps" in match[0] else None)
            yield (int(said[1]) if said else None), dict(zip(shape.names, read.values(), strict=True))


def python_dict(text: bytes) -> dict[str, float]:
    """The numbers in a dict."""
    read = _python_dict(text)
    return dict(zip(_shape(read).names, read.values(), strict=True))


def step_line(line: bytes) -> tuple[int, dict[str, float]] | None:
    found = STEP_LINE.search(line)
    if found is None or len(line) > LONGEST:
        return None
    body = found[2].rstrip()
    if b"np." in body:
        body = WRAPPED.sub(rb"\1", body)
    text = b'{"' + body.replace(b":", b'":').replace(b" - ", b',"') + b"}"
    read = _decoded(text)
    if read is None:
        read = _pairs(body)
    return int(found[1]), dict(zip(_shape(read).names, read.values(), strict=True))


def _pairs(body: bytes) -> dict[str, float]:
    """A name may hold a colon, and a line may be cut in the middle of a pair."""
    parts = (part.rpartition(":") for part in body.decode("utf-8", "replace").split(" - "))
    return _numbers({name: value for name, colon, value in parts if colon})


def _python_dict(text: bytes) -> dict[str, float]:
    if len(text) > LONGEST:
        return {}
    if b"np." in text or b"numpy." in text:
        text = WRAPPED.sub(rb"\1", text)
    read = _decoded(text.replace(b"'", b'"'))
    if read is not None:
        return read
    pairs = DICT_PAIR.findall(text.decode("utf-8", "replace"))
    return _numbers({name: quoted or bare for name, quoted, bare in pairs})


def _decoded(text: bytes) -> dict[str, float] | None:
    if b"nan" in text or b"inf" in text:
        text = NOT_FINITE.sub(rb'"\g<0>"', text)
    try:
        return DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _numbers(read: Mapping[str, Any]) -> dict[str, float]:
    return {name: found for name, value in read.items() if (found := number(value)) is not None}


def _shape(read: Mapping[str, float]) -> Shape:
    names = tuple(read)
    known = SHAPES.get(names)
    if known is None:
        known = Shape(names, any(SIGNAL.search(name) for name in names))
        if len(SHAPES) < MOST_SHAPES:
            SHAPES[names] = known
    return known
