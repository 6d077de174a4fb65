"""Loops and gibberish: how far a completion can be compressed, its longest run, and how much one phrase makes of it."""

import re
import zlib
from collections import Counter
from dataclasses import dataclass

from springtide.diagnosis.completions.sample import Sample

TAIL = 10_000
"""Characters at the end that are looked at: loops go on to the end (as in slime's repetition_frac)."""

COMPRESSES = 10.0
"""Factor from which text is a loop (slime)."""

RUN = 50
"""The same word or sign so many times in a row."""

RULER = 200
"""The same for signs of which people draw lines."""

PHRASE = 4
PHRASE_SHARE = 0.2
FEWEST_WORDS = 50
SHORTEST = 500
"""Characters below which compression says nothing."""

_RUN = re.compile(r"([^\s\-=_*#.~|+])\1{%d,}" % RUN)  # noqa: UP031
_RULED = re.compile(r"(\S)\1{%d,}" % RULER)  # noqa: UP031


@dataclass(frozen=True)
class Repetition:
    """`factor`: by which it compresses; `run`: longest, in words; `phrase`: share of the commonest four words;
    `stretched`: one sign goes on and on."""

    factor: float
    run: int
    phrase: float
    stretched: bool

    @property
    def loops(self) -> bool:
        by_phrase = self.phrase > PHRASE_SHARE and self.factor > COMPRESSES / 2
        return self.factor > COMPRESSES or self.run > RUN or self.stretched or by_phrase


def repetition(text: str) -> Repetition:
    tail = text[-TAIL:]
    words = tail.split()
    raw = tail.encode(errors="replace")
    factor = len(raw) / len(zlib.compress(raw, 6)) if len(raw) >= SHORTEST else 1.0
    phrase = 0.0
    if len(words) >= FEWEST_WORDS:
        counted = Counter(zip(*(words[index:] for index in range(PHRASE)), strict=False))
        phrase = min(1.0, counted.most_common(1)[0][1] * PHRASE / len(words))
    stretched = _RUN.search(tail) is not None or _RULED.search(tail) is not None
    return Repetition(factor, _longest_run(words), phrase, stretched)


def loops(sample: Sample) -> bool | None:
    return repetition(sample.text).loops if sample.text else None


def _longest_run(words: list[str]) -> int:
    longest = current = 0
    before = None
    for word in words:
        current = current + 1 if word == before else 1
        longest, before = max(longest, current), word
    return longest
