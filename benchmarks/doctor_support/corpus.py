"""The runs that rules are measured on: this project's own, which are in the repository, and logs in a folder."""

from collections.abc import Iterator
from pathlib import Path

from doctor_support.labels import Label, present, read_labels
from springtide.diagnosis.frame import Frame
from springtide.diagnosis.read import read


def logs(folder: Path, index: Path) -> Iterator[tuple[Label, list[Frame]]]:
    for label, path in present(read_labels(index), folder):
        yield label, read(path)


def own() -> Iterator[tuple[Label, list[Frame]]]:
    """Runs that `sick_runs.py` has played and kept."""
    from sick_support.results import read_index, unpacked

    for entry in read_index():
        label = Label(
            path=entry.name,
            verdict=entry.verdict,
            symptoms=tuple(entry.expected),
            cause=entry.cause,
            onset=entry.first,
            group=entry.name.rstrip("abcdefgh").rstrip("-"),
            half=entry.half,
        )
        with unpacked(entry) as path:
            yield label, read(path)
