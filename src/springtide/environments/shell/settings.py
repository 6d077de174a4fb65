"""Family `config`: edit a configuration until a check passes. The check names one wrong setting at a time.

Level 1: one setting is wrong. Level 2: one or two are. Level 3: two or three are.
"""

import random
from collections.abc import Mapping, Sequence

from springtide.environments.shell.puzzle import NAMES, NOTHING, Puzzle, Script, Turn

_CHECK = "sh check"
_WRONG = {1: (1, 1), 2: (1, 2), 3: (2, 3)}


def draw_config(rng: random.Random, level: int) -> Puzzle:
    keys = sorted(rng.sample(NAMES, 2 + level))
    wanted = {key: rng.randint(1, 99) for key in keys}
    wrong = sorted(rng.sample(keys, rng.randint(*_WRONG[level])))
    found = {key: _other(rng, value) if key in wrong else value for key, value in wanted.items()}

    def fixes(keys: Sequence[str], *, then: Sequence[Turn]) -> Script:
        turns = [turn for key in keys for turn in (_complaint(key, wanted), _edit(key, wanted[key]))]
        return (*turns, *then, Turn("done"))

    bystander = rng.choice([key for key in keys if key not in wrong])
    mistaken = (_complaint(wrong[0], wanted), _edit(bystander, wanted[wrong[0]]), Turn("done"))
    unsaved = (_complaint(wrong[0], wanted), _preview(found, wrong[0], wanted[wrong[0]]), Turn("done"))
    flaws: dict[str, Script] = {"edits another setting": mistaken, "does not save": unsaved}
    if len(wrong) > 1:
        flaws = {"does not save": unsaved, "stops at the first": fixes(wrong[:1], then=())}
    return Puzzle(
        prompt=f"Edit conf until {_CHECK} prints ok.",
        files={"conf": _text(found), "check": _script(wanted, wrong)},
        target="conf",
        expected=wanted,
        oracle=fixes(wrong, then=[Turn(_CHECK, "ok")]),
        flaws=flaws,
    )


def _other(rng: random.Random, value: int) -> int:
    """A number that is not `value`."""
    other = rng.randint(1, 98)
    return other if other < value else other + 1


def _complaint(key: str, wanted: Mapping[str, int]) -> Turn:
    return Turn(_CHECK, f"want {key}={wanted[key]}")


def _edit(key: str, value: int) -> Turn:
    return Turn(f"sed -i s/{key}=.*/{key}={value}/ conf", NOTHING)


def _preview(found: Mapping[str, int], key: str, value: int) -> Turn:
    after = dict(found) | {key: value}
    return Turn(f"sed s/{key}=.*/{key}={value}/ conf", _text(after).decode().strip())


def _text(values: Mapping[str, int]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in values.items()).encode()


def _script(wanted: Mapping[str, int], wrong: Sequence[str]) -> bytes:
    """Compares what is wrong at first with what is wanted, in order; builtins only, so that it is quick."""
    lines = [f'[ "${key}" = {wanted[key]} ] || {{ echo want {key}={wanted[key]}; exit 1; }}' for key in wrong]
    return "\n".join([". ./conf", *lines, "echo ok\n"]).encode()
