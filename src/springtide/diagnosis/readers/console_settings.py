"""A run's configuration, as far as its console tells: overrides on a command line, and a nested dict printed at the
start.

The printed dict is read by the columns in which its keys stand, so that lines of other workers in between do no harm.
"""

import ast
import re
from typing import Any

from springtide.diagnosis.readers.trouble import bare

OVERRIDE = re.compile(r"(?<![\w.])\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=('[^']*'|\"[^\"]*\"|\S+)")
ENTRY = re.compile(r"'([\w.-]+)': ?([^{][^,}]*)?")
WORKER = re.compile(rb"^(?:\x1b\[[0-9;]*m)*(\([^)]* pid=\d+\)|)")
LAUNCH = (b" -m ", b"python", b"torchrun", b"main_")
LONGEST = 1500
"""Lines of a printed dict."""

MOST = 5000
"""Settings that are kept."""


class ConsoleSettings:
    def __init__(self) -> None:
        self._overrides: dict[str, Any] = {}
        self._printed: dict[str, Any] = {}
        self._stack: list[tuple[int, str]] = []
        self._worker: bytes | None = None
        self._lines = 0

    def found(self) -> dict[str, Any]:
        return self._printed | self._overrides

    def take(self, line: bytes) -> None:
        if self._worker is not None:
            self._continue(line)
        elif b"{'" in line and b": {" in line and bare(line).startswith(b"{'"):
            self._worker = _worker(line)
            self._continue(line)
        if b"=" in line and len(line) < 65536 and any(mark in line for mark in LAUNCH):
            text = line.decode("utf-8", "replace")
            self._overrides |= {name: scalar(value) for name, value in OVERRIDE.findall(text)}

    def _continue(self, line: bytes) -> None:
        if _worker(line) != self._worker:
            return
        text = bare(line).decode("utf-8", "replace")
        self._lines += 1
        for entry in ENTRY.finditer(text):
            self._place(entry.start(), entry[1], entry[2])
        outside = text.strip() and not ENTRY.search(text) and text[:1] not in " {}"
        if outside or self._lines >= LONGEST or (text.rstrip().endswith("}}") and text.count("}") >= len(self._stack)):
            self._worker, self._lines = None, 0
            self._stack.clear()

    def _place(self, column: int, name: str, value: str | None) -> None:
        while self._stack and self._stack[-1][0] >= column:
            self._stack.pop()
        if value is None:
            self._stack.append((column, name))
        elif len(self._printed) < MOST:
            self._printed[".".join((*(part for _, part in self._stack), name))] = scalar(value)


def _worker(line: bytes) -> bytes:
    found = WORKER.match(line)
    return found[1] if found else b""


def scalar(text: str) -> Any:
    """A number, a truth value, None, or the text itself."""
    stripped = text.strip().strip("'\"")
    words = {"true": True, "false": False, "none": None, "null": None, "": None}
    if stripped.lower() in words:
        return words[stripped.lower()]
    if len(stripped) > 200:
        return stripped
    try:
        read = ast.literal_eval(stripped)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        try:
            return float(stripped)
        except ValueError:
            return stripped
    return read if isinstance(read, bool | int | float | str | list | tuple) else stripped
