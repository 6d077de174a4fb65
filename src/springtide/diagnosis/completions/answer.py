"""The final answer of a completion, as a person would read it."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from springtide.diagnosis.completions.sample import Sample, groups

TAIL = 4000
"""Characters at the end in which an answer is looked for."""

_MARKED = (
    re.compile(r"<answer>(.{0,500}?)</answer>", re.IGNORECASE | re.DOTALL),
    re.compile(r"^#{4}[ \t]*(.{1,200})$", re.MULTILINE),
    re.compile(r"\banswer(?: is|:)[ \t]*\**[ \t]*(.{1,200})", re.IGNORECASE),
)
_BOXED = "\\boxed{"
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_NUMBER = re.compile(rf"{_THOUSANDS.pattern}|-?\d+(?:\.\d+)?")


class Answer(NamedTuple):
    """`marked`: the completion says by itself that this is its answer."""

    text: str
    marked: bool


def final_answer(text: str) -> Answer:
    """What is in the last box or behind the last mark, else the last line."""
    tail = text[-TAIL:]
    boxed = _boxed(tail)
    if boxed is not None:
        return Answer(normal(boxed), marked=True)
    for pattern in _MARKED:
        if found := pattern.findall(tail):
            return Answer(normal(found[-1]), marked=True)
    lines = [line for line in tail.splitlines() if line.strip()]
    return Answer(normal(lines[-1]) if lines else "", marked=False)


def normal(answer: str) -> str:
    """Without what does not change its meaning; a number as a plain number."""
    plain = answer.strip().strip("$*`'\" \t.").lower()
    if plain.startswith("\\text{") and plain.endswith("}"):
        plain = plain[6:-1]
    plain = " ".join(plain.split())
    digits = plain.replace("$", "").replace("\\!", "").rstrip("%\\").strip()
    if _THOUSANDS.fullmatch(digits):
        digits = digits.replace(",", "")
    try:
        return f"{float(digits):.12g}"
    except (ValueError, OverflowError):
        return plain


def same_answer(answer: Answer, truth: str) -> bool | None:
    """Whether a marked answer is the reference; None where that cannot be said from the text."""
    reference = normal(_reference(truth))
    if not answer.marked or not reference or not answer.text:
        return None
    if answer.text == reference:
        return True
    numbers = [_NUMBER.findall(each) for each in (answer.text, reference)]
    if all(len(found) == 1 for found in numbers):
        return normal(numbers[0][0]) == normal(numbers[1][0])
    return None


def unique_answers(samples: Iterable[Sample]) -> float | None:
    """Mean over groups of the share of members with an answer of their own; None without groups of several."""
    shares = []
    for members in groups(sample for sample in samples if sample.text):
        if len(members) > 1:
            found = {final_answer(member.text).text for member in members}
            shares.append((len(found) - 1) / (len(members) - 1))
    return sum(shares) / len(shares) if shares else None


def _reference(truth: str) -> str:
    """References often keep the way to the answer before it."""
    boxed = _boxed(truth)
    if boxed is not None:
        return boxed
    return truth.rpartition("####")[2] if "####" in truth else truth


def _boxed(text: str) -> str | None:
    start = text.rfind(_BOXED)
    if start == -1:
        return None
    depth, begin = 1, start + len(_BOXED)
    for index in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return text[begin:index]
    return None
