"""Family `sum`: find files and add up the numbers in them.

Level 1: two or three files. Level 2: also a folder with one or two more. Level 3: also backups to leave out.
"""

import random
from collections.abc import Sequence

from springtide.environments.shell.puzzle import NAMES, Puzzle, Script, Turn

_PROMPTS = {
    1: "Sum the numbers in all files.",
    2: "Sum the numbers in all files, also in sub.",
    3: "Sum the numbers in all files, also in sub, but not in .bak files.",
}
_BACKUP = ".bak"


def draw_sum(rng: random.Random, level: int) -> Puzzle:
    names = sorted(rng.sample(NAMES, rng.randint(2, 3) + (rng.randint(1, 2) if level > 1 else 0)))
    rng.shuffle(names)
    count = len(names) if level == 1 else 2
    top, inner = sorted(names[:count]), sorted(names[count:])
    values = {name: rng.randint(1, 40) for name in top} | {f"sub/{name}": rng.randint(1, 40) for name in inner}
    backups = [f"{rng.choice(top)}{_BACKUP}"] if level == 3 else []
    values |= {name: rng.randint(1, 40) for name in backups}
    right = [name for name in values if not name.endswith(_BACKUP)]
    listing = [Turn("ls", "\n".join(sorted([*top, *backups, *(["sub"] if inner else [])])))]
    deeper = [*listing, Turn("ls sub", "\n".join(inner))] if inner else listing

    def adds(looked: list[Turn], names: Sequence[str]) -> Script:
        total = str(sum(values[name] for name in names))
        command = "awk '{s+=$1}END{print s}' " + " ".join(names)
        return (*looked, Turn(command, total), Turn(f"answer {total}"))

    flaws = {"forgets a file": adds(deeper, right[:-1]), "adds one file only": adds(listing, top[:1])}
    if level > 1:
        flaws = {"forgets a file": adds(deeper, right[:-1]), "forgets the folder": adds(listing, top)}
    if level == 3:
        flaws["adds a backup"] = adds(deeper, sorted([*top, *backups]) + [f"sub/{name}" for name in inner])
    return Puzzle(
        prompt=_PROMPTS[level],
        files={name: f"{value}\n".encode() for name, value in values.items()},
        target="answer",
        expected=(sum(values[name] for name in right),),
        oracle=adds(deeper, right),
        flaws=flaws,
    )
