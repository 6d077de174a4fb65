"""Which reader a path is for. Readers live in `readers/`, one module per container, each with `sniff` and `read`.

A reader may claim a file or a folder; a folder that is claimed is read as a whole and not searched any further. The
order matters: the first reader that claims a path gets it, so what knows a container by its magic comes before what
guesses from text. Modules are imported when they are first asked.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from springtide.diagnosis.log import Log

READERS = (
    "springtide_run",
    "trainer_state",
    "tensorboard",
    "mlflow",
    "trackio",
    "wandb_run",
    "prometheus",
    "art",
    "jsonl",
    "json_rows",
    "csv_table",
    "printed",
    "console",
)


class Reader(Protocol):
    """`sniff` looks at the name and the head and raises nothing; `read` gives what it could read and notes on the
    rest."""

    __name__: str

    def sniff(self, path: Path) -> bool: ...

    def read(self, path: Path) -> list[Log]: ...


@cache
def readers() -> tuple[Reader, ...]:
    return tuple(cast(Reader, import_module(f"springtide.diagnosis.readers.{name}")) for name in READERS)


def reader_of(path: Path) -> Reader | None:
    """The reader that claims the path; None if none does. OSError if the path cannot be looked at."""
    return next((reader for reader in readers() if reader.sniff(path)), None)
