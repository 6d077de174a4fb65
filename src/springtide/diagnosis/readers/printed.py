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
from springtide.diagnosis.readers.lines import lines
from springtide.diagnosis.readers.trouble import TRACEBACK, Trouble, saved

SUFFIXES = (".log", ".txt", ".out", ".err", ".stdout", ".stderr", "")
FAR = 1 << 25
"""Bytes of a file in which the first step is expected."""
HINTS = (b"rror", b"Killed", b"fault", b"emory", b"oom-", b"imeout", b"TIME LIMIT", b"dumped")

MARKS: dict[str, tuple[tuple[bytes, ...], ...]] = {
    "openrlhf": ((b"Global step ", b"'policy_loss'"), (b"Train epoch [", b"act_lr="), (b"Episode [", b"actor_lr=")),
    "slime": ((b": {'train/",), (b": {'rollout/",)),
    "prime_rl": ((b"Step ", b" | Mismatch KL"), (b"Step ", b" | Trainable "), (b"Step ", b" | Async Level")),
    "roll": ((b"metrics_tag: {",),),
    "skyrl": ((b"'reward/avg_raw_reward'",),),
    "nemo_rl": (("📊 Training Results:".encode(),),),
    "areal": ((b"Train step ", "│ ppo_actor/".encode()),),
}
"""By framework: its console has all words of one of the entries. Each has a module of its name, `printed_NAME`."""


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
    parser = cast(Printed, import_module(f"springtide.diagnosis.readers.printed_{framework}").parser())
    trouble, settings, checkpoints = Trouble(), ConsoleSettings(), set[int]()
    for number, line in enumerate(lines(path), start=1):
        parser.take(line)
        if trouble.watching or TRACEBACK in line or any(hint in line for hint in HINTS):
            trouble.take(line, number, parser.count)
        elif b"av" in line and (step := saved(line)) is not None:
            checkpoints.add(step)
        if not parser.count:
            settings.take(line)
    rows = parser.rows()
    notes = [
        Note(text=f"An error in the middle, after which the run went on: {text}", line=line)
        for at, line, text in trouble.errors[:3]
        if at < parser.count
    ]
    return [
        Log(
            source=path,
            container="printed",
            framework=framework,
            rows=rows,
            settings=settings.found(),
            notes=tuple(notes),
            error=trouble.after(parser.count),
            checkpoints=tuple(sorted(checkpoints)),
        )
    ]
