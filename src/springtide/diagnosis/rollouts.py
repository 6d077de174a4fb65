"""Which files hold rollouts, by their first rows; `completions` reads them."""

import re
from pathlib import Path

from springtide.diagnosis.completions.formats import reader_of
from springtide.diagnosis.completions.read import NOT_ROLLOUTS
from springtide.diagnosis.completions.tinker import LOGTREE, SUMMARIES
from springtide.diagnosis.readers.head import head
from springtide.diagnosis.readers.jsonl import SUFFIXES, json_object

TABLE = re.compile(r"(?i).*(completion|rollout|sample|generation|trajector).*\.parquet")
ROWS = 3


def holds_rollouts(path: Path) -> bool:
    """Whether a file is a dump, or a folder that of one iteration of tinker-cookbook."""
    if path.is_dir():
        return (path / SUMMARIES).is_file() or (path / LOGTREE).is_file()
    if NOT_ROLLOUTS.match(path.name):
        return False
    if path.suffix == ".parquet":
        return TABLE.fullmatch(path.name) is not None or "completions" in path.parent.name
    return path.suffix.lower() in SUFFIXES and _rows_are_said(path)


def _rows_are_said(path: Path) -> bool:
    for line in head(path).split(b"\n")[:ROWS]:
        row = json_object(line)
        if row is not None and reader_of(row)[1](row, "", 0) is not None:
            return True
    return False
