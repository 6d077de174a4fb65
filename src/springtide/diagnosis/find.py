"""What there is to read under a path: a file, the folder of one run, or a folder of many.

A folder that a reader claims is one source. Else its files are asked one by one, and its folders searched. What is a
checkpoint is not searched beyond its `trainer_state.json`, of which the latest holds all that the others hold.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from springtide.diagnosis.rollouts import holds_rollouts
from springtide.diagnosis.sniff import Reader, reader_of

DEPTH = 8
MOST = 20_000
"""Files and folders that are looked at."""

SKIPPED = frozenset(("__pycache__", "node_modules", "site-packages", ".git", ".venv", "venv"))
WEIGHTS = frozenset((".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".zip", ".gz", ".npy", ".arrow", ".whl"))
CHECKPOINT = re.compile(r"(?:checkpoint|global_step|iter|step)[-_]?(\d{1,12})")


class Source(NamedTuple):
    reader: Reader
    path: Path


class Unreadable(NamedTuple):
    path: Path
    reason: str


class Found(NamedTuple):
    """`samples`: files, or folders of an iteration, that hold rollouts."""

    sources: tuple[Source, ...]
    samples: tuple[Path, ...]
    unreadable: tuple[Unreadable, ...]


def find(path: Path) -> Found:
    """Everything under the path, in the order of names; the last `trainer_state.json` of a run only."""
    found = list(_search(path, DEPTH, _Budget()))
    read = [each for each in found if isinstance(each, Source)]
    return Found(
        sources=tuple(each for each in read if not _is_superseded(each, read)),
        samples=tuple(each for each in found if isinstance(each, Path)),
        unreadable=tuple(each for each in found if isinstance(each, Unreadable)),
    )


class _Budget:
    def __init__(self) -> None:
        self.left = MOST

    def spend(self) -> bool:
        self.left -= 1
        return self.left >= 0


def _search(path: Path, depth: int, budget: _Budget) -> Iterator[Source | Path | Unreadable]:
    if not budget.spend() or path.suffix in WEIGHTS:
        return
    try:
        found = _claimed(path)
        entries = _entries(path) if found is None and depth and path.is_dir() else []
    except OSError as error:
        yield Unreadable(path, error.strerror or str(error))
        return
    if found is not None:
        yield found
    checkpoint = CHECKPOINT.fullmatch(path.name) is not None
    for entry in entries:
        if not checkpoint or entry.name == "trainer_state.json":
            yield from _search(entry, depth - 1, budget)


def _claimed(path: Path) -> Source | Path | None:
    reader = reader_of(path)
    if reader is not None:
        return Source(reader, path)
    return path if holds_rollouts(path) else None


def _entries(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        usable = [each.name for each in entries if each.name not in SKIPPED and not _leads_away(each)]
    return [folder / name for name in sorted(usable, key=_natural)]


def _leads_away(entry: os.DirEntry[str]) -> bool:
    """A link to a folder, or to nothing that can be followed."""
    try:
        return entry.is_symlink() and (entry.is_dir() or not os.path.exists(entry))
    except OSError:
        return True


def _natural(name: str) -> list[tuple[int, str]]:
    """Numbers by their value: step 9 before step 10."""
    return [(int(part), "") if part.isdecimal() and len(part) < 16 else (-1, part) for part in re.split(r"(\d+)", name)]


def checkpoint_step(path: Path) -> int | None:
    """The step in the name of a checkpoint's folder."""
    found = CHECKPOINT.fullmatch(path.name)
    return int(found[1]) if found else None


def _is_superseded(source: Source, all_of_them: Sequence[Source]) -> bool:
    if source.path.name != "trainer_state.json":
        return False
    run = run_folder(source.path)
    others = [each.path for each in all_of_them if each.path.name == source.path.name and run_folder(each.path) == run]
    return max(others, key=_progress) != source.path


def _progress(path: Path) -> tuple[int, float]:
    """That of the run's own folder is written at its end and is the latest."""
    step = checkpoint_step(path.parent)
    return (10**13 if step is None else step), path.stat().st_mtime


def run_folder(path: Path) -> Path:
    """The folder of the run that a file belongs to: the one that its checkpoint is in, else its own. What follows a `#`
    in the name of a source says which of several runs it is."""
    if not path.exists():
        path = path.with_name(path.name.partition("#")[0] or path.name)
    folder = path if path.is_dir() else path.parent
    return folder.parent if checkpoint_step(folder) is not None else folder
