"""Loops and gibberish: how far a completion can be compressed, its longest run, and how much one phrase makes of it."""

import zlib
from collections import Counter
from dataclasses import dataclass

import numpy as np

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

_LINES = frozenset(b"-=_*#.~|+")
_BLANKS = frozenset(b" \t\n\r")


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
    return Repetition(factor, _longest_run(words), phrase, _is_stretched(raw))


def loops(sample: Sample) -> bool | None:
    return repetition(sample.text).loops if sample.text else None


def _is_stretched(raw: bytes) -> bool:
    """Whether one sign goes on and on."""
    signs = np.frombuffer(raw, dtype=np.uint8)
    ends = np.flatnonzero(np.diff(signs, append=np.uint8(0), prepend=np.uint8(0)))
    for index in np.flatnonzero(np.diff(ends) > RUN):
        sign, length = int(signs[ends[index]]), int(ends[index + 1] - ends[index])
        if sign not in _BLANKS and length > (RULER if sign in _LINES else RUN):
            return True
    return False


def _longest_run(words: list[str]) -> int:
    longest = current = 0
    before = None
    for word in words:
        current = current + 1 if word == before else 1
        longest, before = max(longest, current), word
    return longest
