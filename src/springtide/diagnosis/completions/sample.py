"""A completion that a run sampled, whoever wrote it down: what the measures read."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from springtide.diagnosis.log import Note

KEPT = 16_000
"""Characters of a completion that are kept: its beginning and its end. A loop or a hack shows in them."""

KEPT_OF_PROMPT = 4_000


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """`group`: completions of one prompt at one step share it. What the dump does not say is None. `tokens`: sampled
    ones; `truth`: the reference answer; `components`: further numbers of the grader; `place`: where it stands."""

    step: int
    group: str
    text: str
    prompt: str = ""
    reward: float | None = None
    tokens: int | None = None
    truncated: bool | None = None
    parsed: bool | None = None
    truth: str = ""
    components: Mapping[str, float] = {}
    place: str = ""

    @property
    def length(self) -> int:
        """In tokens where the dump counts them, else in characters."""
        return self.tokens if self.tokens is not None else len(self.text)


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read of a run's dumps, by step. `rows`: that were there; a long run is thinned to whole groups of
    some of its steps."""

    source: Path
    framework: str
    samples: tuple[Sample, ...] = ()
    rows: int = 0
    notes: tuple[Note, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(sorted({sample.step for sample in self.samples}))


def shortened(text: str, limit: int = KEPT) -> str:
    """`text` without its middle, if it is longer than `limit`."""
    return text if len(text) <= limit else text[: limit // 2] + text[-limit // 2 :]


def groups(samples: Iterable[Sample]) -> list[list[Sample]]:
    """The samples by group, in the order in which groups first appear."""
    found: dict[tuple[int, str], list[Sample]] = {}
    for sample in samples:
        found.setdefault((sample.step, sample.group), []).append(sample)
    return list(found.values())
