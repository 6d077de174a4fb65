"""From a task to its puzzle: which family and level, and which contents belong to which split.

Contents are divided as seeds are: a puzzle whose contents hash to the other side is drawn again. So not only the seeds
but the contents themselves of held-out tasks never occur in training or in a demonstration.
"""

import hashlib
import random
from typing import Any

from springtide.core.task import Task
from springtide.environments.shell.logs import draw_log
from springtide.environments.shell.puzzle import Family, Puzzle
from springtide.environments.shell.settings import draw_config
from springtide.environments.shell.sums import draw_sum
from springtide.environments.stream import held_out

FAMILIES: dict[str, Family] = {"sum": draw_sum, "config": draw_config, "log": draw_log}
_HELD_OUT_SHARE = 4
"""One in this many contents is held out."""


def puzzle_of(task: Task) -> Puzzle:
    """The puzzle of `task`; pure in its seed and data."""
    return generate(family=task.data["family"], level=task.data["level"], seed=task.seed)


def generate(*, family: str, level: int, seed: int) -> Puzzle:
    """The puzzle of `family` and `level` (1 to 3) for `seed`, on the seed's side of the split."""
    attempt = 0
    while True:
        puzzle = FAMILIES[family](random.Random(f"{family} {level} {seed} {attempt}"), level)
        if _contents_held_out(puzzle) == held_out(seed):
            return puzzle
        attempt += 1


def task_data(families: tuple[str, ...], levels: tuple[int, ...], index: int) -> dict[str, Any]:
    """Families and levels in turn, so that every stretch of a stream holds all of them alike."""
    number, family = divmod(index, len(families))
    return {"family": families[family], "level": levels[number % len(levels)]}


def _contents_held_out(puzzle: Puzzle) -> bool:
    contents = repr((puzzle.prompt, sorted(puzzle.files.items()))).encode()
    return hashlib.blake2b(contents, digest_size=2).digest()[0] % _HELD_OUT_SHARE == 0
