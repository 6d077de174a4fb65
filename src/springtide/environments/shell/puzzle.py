"""A generated shell task: the files of its box, what must be true in the end, and ways to get there or not.

Everything about a puzzle is pure in its seed. Its scripts carry the outputs that the shell will show, computed, not
run, so demonstrations cost nothing; tests run them and compare.
"""

import random
import re
from collections.abc import Callable, Mapping

import msgspec

NAMES = ("ash", "bay", "cod", "dew", "elm", "fog", "gum", "hay", "ink", "jam", "kit", "oak", "pea", "rye")
"""Names of files, hosts and keys: a small closed vocabulary, in the order of `ls`."""

OUTPUT_LIMIT = 200
CUT = " [cut]"
NOTHING = "no output"

_SHELL_PREFIX = re.compile(r"^(?:/bin/)?sh: (?:line )?(?:\d+: )?", re.MULTILINE)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_SETTING = re.compile(r"([a-z]+)=(0|[1-9][0-9]{0,8})")


class Turn(msgspec.Struct, frozen=True):
    """What the agent sends and what the shell shows; nothing is shown after the last turn."""

    text: str
    output: str = ""


Script = tuple[Turn, ...]
Expected = tuple[int, ...] | Mapping[str, int]


class Puzzle(msgspec.Struct, frozen=True, kw_only=True):
    """`expected` is what the file `target` must hold: numbers, one per line, or settings `name=number` in any order.

    `oracle` solves it; each of `flaws`, by the name of its mistake, does not.
    """

    prompt: str
    files: Mapping[str, bytes]
    target: str
    expected: Expected
    oracle: Script
    flaws: Mapping[str, Script]

    def solved(self, content: bytes | None) -> bool:
        """Whether `content` of the target is right, read strictly."""
        read = settings if isinstance(self.expected, Mapping) else numbers
        return content is not None and read(content) == self.expected


Family = Callable[[random.Random, int], Puzzle]
"""Draws a puzzle of a level."""


def shown(output: bytes) -> str:
    """What the agent sees of a command's output: text, trimmed, cut at OUTPUT_LIMIT characters with a visible mark."""
    text = _SHELL_PREFIX.sub("", output.decode(errors="replace")).strip()
    if not text:
        return NOTHING
    return text if len(text) <= OUTPUT_LIMIT else text[:OUTPUT_LIMIT] + CUT


def numbers(content: bytes) -> tuple[int, ...] | None:
    """The numbers in a file of one per line; None if it holds anything else."""
    lines = _lines(content)
    if lines is None or not all(_NUMBER.fullmatch(line) for line in lines):
        return None
    return tuple(int(line) for line in lines)


def settings(content: bytes) -> dict[str, int] | None:
    """The settings in a file of `name=number` lines; None if it holds anything else or a name twice."""
    lines = _lines(content)
    matches = [_SETTING.fullmatch(line) for line in lines or ()]
    pairs = {match[1]: int(match[2]) for match in matches if match}
    return pairs if lines is not None and len(pairs) == len(lines) else None


def _lines(content: bytes) -> list[str] | None:
    try:
        return content.decode("ascii").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        return None
