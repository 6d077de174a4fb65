"""What is known of a log: an index in TOML beside the logs, or apart from them, names each with what has to be said."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from springtide.core.errors import UsageError

RUN_LOGS = Path(__file__).with_name("run_logs.toml")


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """`path`: of the log, below a folder. `verdict`: that has to be said; of a healthy run (OK, WATCH) the worst that
    may be; `any` leaves it open. `symptoms`: one at least has to be found. `cause`: what was planted. `onset`: the
    step at which it began. `group`: runs of one recipe, which are no independent trials. `half`: tuning or held_out,
    if it is."""

    path: str
    verdict: Literal["OK", "WATCH", "SICK", "INSUFFICIENT", "UNAVAILABLE", "any"]
    symptoms: tuple[str, ...] = ()
    cause: str = ""
    onset: int | None = None
    group: str = ""
    half: str = ""
    source: str = ""

    @property
    def healthy(self) -> bool:
        return self.verdict in ("OK", "WATCH")


class _Index(msgspec.Struct):
    log: list[Label]


def read_labels(path: Path) -> list[Label]:
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _Index).log
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path} is no index of labelled logs: {error}") from error


def present(labels: list[Label], folder: Path) -> Iterator[tuple[Label, Path]]:
    """Those whose log is in `folder`."""
    for label in labels:
        if (folder / label.path).exists():
            yield label, folder / label.path
