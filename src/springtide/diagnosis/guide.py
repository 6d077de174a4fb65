"""`python -m springtide.diagnosis.guide [FOLDER]`: writes the reference of the field guide, made from the rules.

Only what it made itself is ever replaced or removed, and known by its first line: pages that people write in the same
folder stay, and the index names them.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from springtide.diagnosis.entry import GRADES, all_causes, cause_entry, entry, index, ordered, table

FOLDER = Path("docs/guide")

MADE = "<!-- Made by `python -m springtide.diagnosis.guide` from the rules: change those, not this page. -->"

_INTRODUCTION = """# The field guide

What can go wrong in a reinforcement-learning run of a language model, how it shows in the log, what else it could be,
what to check next, and what to change. `springtide doctor PATH` looks for all of it in the logs of any framework;
`springtide doctor explain SYMPTOM` prints a page of this guide. The pages on symptoms and causes are made from the very
rules that the command applies.
"""

_READING = """
## How to read it

A rule fires on several things at once, over several values in a row, and by the run's own beginning rather than by a
level: no single metric with an absolute threshold separates sick runs from healthy ones. Every threshold says where it
comes from:
"""

_MEASURED = """
*Measured* says on how many runs that have the symptom the rule found it, and on how many healthy ones it was wrong, as
`python benchmarks/doctor.py` counted. A rule that has not been run on data says so, here and in every report.
"""

_SYMPTOMS = """
## Symptoms

"""


def pages(written: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """All that is made, by path within the guide. `written`: (path, title) of pages that people wrote."""
    made = {"README.md": _front(written), "causes.md": _causes_page()}
    made |= {f"symptoms/{rule.id}.md": entry(rule, causes_page="../causes.md") for rule in ordered()}
    return {path: f"{MADE}\n\n{text}" for path, text in made.items()}


def write(folder: Path) -> list[Path]:
    """Make the guide in `folder`. Returns what was changed or removed."""
    changed = []
    made = pages(written_by_people(folder))
    for path, text in made.items():
        file = folder / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            changed.append(file)
    for file in sorted(folder.rglob("*.md")):
        if file.relative_to(folder).as_posix() not in made and _is_made(file):
            file.unlink()
            changed.append(file)
    return changed


def written_by_people(folder: Path) -> list[tuple[str, str]]:
    """Their pages, each with its first heading."""
    found = []
    for file in sorted(folder.rglob("*.md")):
        if not _is_made(file):
            lines = file.read_text(encoding="utf-8").splitlines()
            title = next((line.removeprefix("# ").strip() for line in lines if line.startswith("# ")), file.stem)
            found.append((file.relative_to(folder).as_posix(), title))
    return found


def _is_made(file: Path) -> bool:
    with file.open(encoding="utf-8") as lines:
        return lines.readline().rstrip("\n") == MADE


def _front(written: Sequence[tuple[str, str]]) -> str:
    text = _INTRODUCTION
    if written:
        text += "\n" + "\n".join(f"- [{title}]({path})" for path, title in written) + "\n"
    grades = table(["grade", "the threshold comes from"], [[grade, said] for grade, said in GRADES.items()])
    text += _READING + "\n" + "\n".join(grades) + "\n" + _MEASURED
    return text + _SYMPTOMS + index(pages="symptoms/") + "\n[Causes](causes.md) lists what they come from.\n"


def _causes_page() -> str:
    entries = [cause_entry(cause, pages="symptoms/") for cause in all_causes()]
    return (
        "# Causes\n\nWhat symptoms come from. One cause shows as several; [the guide](README.md) begins with them.\n\n"
        + ("\n".join(entries))
    )


def main(arguments: Sequence[str]) -> None:
    folder = Path(arguments[0]) if arguments else FOLDER
    changed = write(folder)
    sys.stdout.write("".join(f"{file}\n" for file in changed) or f"{folder} is up to date.\n")


if __name__ == "__main__":
    main(sys.argv[1:])
