"""ART's `history.jsonl`: a row per call of `log`, several per step; those of validation are rows of their own."""

from pathlib import Path

from springtide.diagnosis.log import Log, Note, RowKind
from springtide.diagnosis.readers.grouping import RowBuilder
from springtide.diagnosis.readers.head import head
from springtide.diagnosis.readers.trackio import moment
from springtide.diagnosis.readers.values import from_json, numbers, step_of

BOOKKEEPING = ("step", "training_step", "recorded_at")


def sniff(path: Path) -> bool:
    if path.suffix != ".jsonl":
        return False
    first = head(path).split(b"\n", 1)[0]
    return b'"recorded_at"' in first and b'"step"' in first and (b'"train/' in first or b'"val/' in first)


def read(path: Path) -> list[Log]:
    builder = RowBuilder()
    torn = 0
    with path.open("rb") as file:
        for line in file:
            try:
                read = from_json(line)
            except ValueError:
                read = None
            if not isinstance(read, dict):
                torn += bool(line.strip())
                continue
            values = {name: value for name, value in numbers(read).items() if name not in BOOKKEEPING}
            begins = {name.split("/", 1)[0] for name in values}
            kind: RowKind = "eval" if "val" in begins and begins.isdisjoint(("train", "loss")) else "train"
            builder.add(values, step_of(read.get("step")), moment(read.get("recorded_at")), kind)
    notes = (Note(text=f"{torn} lines could not be read."),) if torn else ()
    return [Log(source=path, container="art", framework="art", rows=builder.rows(), notes=notes)]
