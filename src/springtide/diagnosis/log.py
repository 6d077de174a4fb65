"""What a reader found in one place: rows as they were written, under the framework's own names.

Nothing is interpreted here. A file that is torn or half garbage gives the rows that could be read, and notes say what
could not.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

RowKind = Literal["train", "eval"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """`step`: None where the writer gave none; rows are in the order of the file. `time`: Unix seconds, if known."""

    values: dict[str, float]
    step: int | None = None
    time: float | None = None
    kind: RowKind = "train"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the file itself that a reader of the diagnosis has to know. `line`: from 1, if there is one."""

    text: str
    line: int | None = None


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """One container of one or several runs.

    `container`: the reader's name. `framework`: where the container says it. `settings`: what is known of the run's
    configuration, flat, under the framework's names. `window`: train steps that a value is a mean over. `error`: the
    first error text, if the run ended with one. `checkpoints`: steps at which any was saved. `last_only`: there are
    last values and no history. `samples`: files with rollouts.
    """

    source: Path
    container: str
    rows: tuple[Row, ...]
    framework: str | None = None
    settings: dict[str, Any] = {}
    window: int = 1
    notes: tuple[Note, ...] = ()
    error: str | None = None
    checkpoints: tuple[int, ...] = ()
    last_only: bool = False
    samples: tuple[Path, ...] = ()
