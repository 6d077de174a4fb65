"""What a run was diagnosed with on the way: `diagnosis.jsonl` in its folder, one object per look, appended and flushed.

Written by the monitor of `springtide.diagnosis`; read by whoever shows a run. A resumed run looks at steps that it
repeats once more: of several records of one step the last one counts.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from springtide.telemetry.jsonl import cut_torn_line


class SymptomRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A symptom that holds. `causes`: titles, the likeliest first; `text`: the evidence."""

    id: str
    title: str
    verdict: str
    onset_step: int | None = None
    text: str = ""
    causes: tuple[str, ...] = ()
    next_check: str = ""
    remedy: str = ""


class VerdictRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`symptoms`: those that are WATCH or SICK, the worst first. `earliest_mover`: the metric that left its baseline
    first; `rollback_step`: the last checkpoint before that."""

    time: float
    step: int
    verdict: str
    symptoms: tuple[SymptomRecord, ...] = ()
    earliest_mover: str = ""
    rollback_step: int | None = None


class VerdictFile:
    """Appends to `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        cut_torn_line(path)

    def append(self, record: VerdictRecord) -> None:
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")


def read_verdicts(path: Path) -> Iterator[VerdictRecord]:
    """All records in order; none if the file does not exist. Lines that are not records are skipped."""
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(VerdictRecord)
    with path.open("rb") as file:
        for line in file:
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue


def newest_verdict(path: Path) -> VerdictRecord | None:
    found = None
    for record in read_verdicts(path):
        found = record
    return found
