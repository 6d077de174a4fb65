"""Consoles of frameworks that print their metrics in a form of their own.

Which one it is shows in words that stand in every step's print. They are looked for far into a file, since engines
print much before the first step. What any console may hold is taken from it as well: the error it ended with,
checkpoints, and settings.
"""

from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from springtide.diagnosis.log import Log, Note, Row
from springtide.diagnosis.readers.console_settings import ConsoleSettings
from springtide.diagnosis.readers.head import head, is_text
from springtide.diagnosis.readers.lines import blocks
from springtide.diagnosis.readers.trouble import TRACEBACK, Trouble, saved

SUFFIXES = (".log", ".txt", ".out", ".err", ".stdout", ".stderr", "")
FAR = 1 << 25
"""Bytes of a file in which the first step is expected."""
HINTS = (TRACEBACK, b"rror", b"Killed", b"fault", b"emory", b"oom-", b"imeout", b"TIME LIMIT", b"dumped")

MARKS: dict[str, tuple[tuple[bytes, ...], ...]] = {
    "openrlhf": ((b"Global step ", b"'policy_loss'"), (b"Train epoch [", b"act_lr="), (b"Episode [", b"actor_lr=")),
    "slime": ((b": {'train/",), (b": {'rollout/",)),
    "prime_rl": ((b" Step ", b" | Mismatch KL"), (b" Step ", b" | Trainable "), (b" Step ", b" | Reward: ")),
    "roll": ((b"metrics_tag: {",),),
    "skyrl": ((b"'reward/avg_raw_reward'",),),
    "nemo_rl": (("📊 Training Results:".encode(),),),
    "areal": ((b"Train step ", b" done.", "│ ".encode()),),
}
"""By framework: its console has all words of one of the entries. Each has a module of its name, `printed_NAME`, with
`parser()` and `WORDS`, of which each line that matters has one."""


class Printed(Protocol):
    """Folds over lines; `count` says how many rows there are so far."""

    @property
    def count(self) -> int: ...

    def take(self, line: bytes) -> None: ...

    def rows(self) -> tuple[Row, ...]: ...


def sniff(path: Path) -> bool:
    if path.name.startswith(".") or path.suffix.lower() not in SUFFIXES or not path.is_file():
        return False
    return is_text(head(path)) and framework_of(path) is not None


def framework_of(path: Path) -> str | None:
    state = path.stat()
    return _framework_of(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _framework_of(path: Path, modified: int, size: int) -> str | None:
    with path.open("rb") as file:
        data = file.read(FAR)
    for framework, entries in MARKS.items():
        if any(all(word in data for word in words) for words in entries):
            return framework
    return None


def read(path: Path) -> list[Log]:
    framework = framework_of(path)
    if framework is None:
        return []
    module = import_module(f"springtide.diagnosis.readers.printed_{framework}")
    scan = _Scan(cast(Printed, module.parser()), module.WORDS)
    for block in blocks(path):
        scan.take(block)
    return [scan.log(path, framework)]


class _Scan:
    """Folds over blocks of lines. Most blocks of a large console hold nothing but other lines, and are not cut up."""

    def __init__(self, parser: Printed, words: tuple[bytes, ...]) -> None:
        self._parser, self._words = parser, words
        self._trouble, self._settings = Trouble(), ConsoleSettings()
        self._checkpoints: set[int] = set()
        self._number = 0

    def take(self, block: bytes) -> None:
        begun = self._parser.count > 0
        troubled = self._trouble.watching or any(hint in block for hint in HINTS)
        saving = b"sav" in block or b"Sav" in block
        if begun and not (troubled or saving or any(word in block for word in self._words)):
            self._number += block.count(b"\n")
            return
        for line in block.split(b"\n"):
            self._number += 1
            self._parser.take(line)
            if troubled and (self._trouble.watching or any(hint in line for hint in HINTS)):
                self._trouble.take(line, self._number, self._parser.count)
            if saving and (step := saved(line)) is not None:
                self._checkpoints.add(step)
            if not begun:
                self._settings.take(line)
        self._number -= block.endswith(b"\n")

    def log(self, path: Path, framework: str) -> Log:
        errors = [(at, line, text) for at, line, text in self._trouble.errors if at < self._parser.count]
        return Log(
            source=path,
            container="printed",
            framework=framework,
            rows=self._parser.rows(),
            settings=self._settings.found(),
            notes=tuple(
                Note(text=f"An error in the middle, after which the run went on: {text}", line=line)
                for _, line, text in errors[:3]
            ),
            error=self._trouble.after(self._parser.count),
            checkpoints=tuple(sorted(self._checkpoints)),
        )
