"""Do completions to different prompts begin alike, and do they say the same?

A policy that has found what pays whatever is asked opens every reply the same way. One that has learnt a format does so
too, so that openings alone are no more than a reason to read some; replies that are alike to the end are more.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from springtide.diagnosis.completions.sample import Sample, groups

OPENING = 3
"""Words of an opening."""

SHINGLE = 3
"""Words of the pieces by which two completions are compared."""

COMPARED = 48
"""Groups of which a completion is compared with those of the others."""

FEWEST_WORDS = 12
"""Below so many words completions are alike because they are short."""

_MARKUP = re.compile(r"<[^<>\n]{1,40}>|[*_#>`]+")
_WORD = re.compile(r"\w+")


def opening(sample: Sample) -> str:
    """The first words, in lower case, tags and markup left out."""
    words = _WORD.findall(_MARKUP.sub(" ", sample.text[:400]))
    return " ".join(words[:OPENING]).lower()


def commonest_opening(samples: Sequence[Sample]) -> tuple[str, float]:
    """The opening that most groups use, and its mean share within groups."""
    total: Counter[str] = Counter()
    found = groups(sample for sample in samples if sample.text)
    for members in found:
        for text, count in Counter(opening(member) for member in members).items():
            total[text] += count / len(members)  # type: ignore[assignment]
    if not total:
        return "", 0.0
    text, weight = total.most_common(1)[0]
    return text, weight / len(found)


def similarity(samples: Sequence[Sample]) -> float | None:
    """Mean share of common pieces between completions to different prompts; None where they are few or short."""
    chosen = [members[0] for members in groups(sample for sample in samples if sample.text)]
    kept = [chosen[index] for index in range(0, len(chosen), max(1, len(chosen) // COMPARED))][:COMPARED]
    pieces = [(sample.prompt or sample.group, _pieces(sample.text)) for sample in kept]
    long_enough = [(prompt, found) for prompt, found in pieces if len(found) >= FEWEST_WORDS - SHINGLE + 1]
    if len(long_enough) < max(2, len(pieces) // 2):
        return None
    shares = [
        len(left & right) / len(left | right)
        for (one, left), (other, right) in combinations(long_enough, 2)
        if one != other
    ]
    return sum(shares) / len(shares) if shares else None


def _pieces(text: str) -> frozenset[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    return frozenset(zip(*(words[index:] for index in range(SHINGLE)), strict=False))
