"""What a console says of a crash: the first error, not the last; and of checkpoints that were saved."""

import re

TRACEBACK = b"Traceback (most recent call last)"
ERROR = re.compile(
    r"^\W*((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Failure|Warning|Iteration)\b"
    r"(?::.*|\(.*)?)$"
)
FATAL = re.compile(
    rb"CUDA out of memory|OutOfMemoryError|Segmentation fault|Fatal Python error|oom-kill|Out Of Memory|"
    rb"slurmstepd: error|collective operation timeout|ActorDiedError|core dumped|^Killed$|DUE TO TIME LIMIT"
)
COLOUR = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
PREFIX = re.compile(rb"^\((?:[^()]|\([^()]*\))* pid=[^()]*\) ?|^\[?rank\d+\]?: ?")
SAVING = re.compile(rb"\bsav(?:ed|ing)\b", re.IGNORECASE)
CHECKPOINT = re.compile(rb"(?:checkpoint|global_step|step|iter)[-_](\d{1,12})\b", re.IGNORECASE)
LONGEST = 500
"""Characters that are kept of an error."""

LINE = 4096
"""Bytes of a line that are looked at."""

MOST = 1000
"""Errors that are kept."""


def bare(line: bytes) -> bytes:
    """Without colours and without what Ray or torchrun put before a worker's line."""
    if b"\x1b" in line:
        line = COLOUR.sub(b"", line)
    return PREFIX.sub(b"", line) if line[:1] in (b"(", b"[", b"r") else line


def may_be_trouble(line: bytes) -> bool:
    """Whether it is worth a closer look; cheap, since every line is asked."""
    return (
        b"rror" in line
        or b"raceback" in line
        or b"emory" in line
        or b"illed" in line
        or b"fault" in line
        or b"oom-" in line
        or b"imeout" in line
        or b"TIME LIMIT" in line
        or b"dumped" in line
    )


class Trouble:
    """Folds over the lines of a console; `row` says how many rows of numbers were before."""

    def __init__(self) -> None:
        self.errors: list[tuple[int, int, str]] = []
        self._open = False

    def take(self, line: bytes, number: int, row: int) -> None:
        if TRACEBACK in line:
            self._open = True
            return
        text = bare(line[:LINE])
        if self._open:
            found = ERROR.match(text.decode("utf-8", "replace").rstrip()) if text[:1].strip() else None
            if found is not None:
                self._open = False
                self._add(row, number, found[1])
        elif FATAL.search(text):
            self._add(row, number, text.decode("utf-8", "replace").strip())

    @property
    def watching(self) -> bool:
        """Inside of a traceback every line counts."""
        return self._open

    def _add(self, row: int, number: int, text: str) -> None:
        if len(self.errors) < MOST:
            self.errors.append((row, number, "".join(each for each in text if each.isprintable())[:LONGEST]))

    def after(self, row: int) -> str | None:
        """The first error that no row came after."""
        return next((text for at, _, text in self.errors if at >= row), None)


def saved(line: bytes) -> int | None:
    """The step of a checkpoint that this line says was written."""
    found = CHECKPOINT.findall(line) if SAVING.search(line) else []
    return int(found[-1]) if found else None
