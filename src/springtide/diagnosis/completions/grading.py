"""Does the grader say what the text says? Completions that it could not read, right ones that it gives nothing, and
wrong ones that it pays in full, where a reference answer is in the dump."""

from collections.abc import Callable, Iterable

from springtide.diagnosis.completions.answer import final_answer, same_answer
from springtide.diagnosis.completions.sample import Sample

Judge = Callable[[Sample], "bool | None"]


def unparsed(sample: Sample) -> bool | None:
    """None where the dump does not say."""
    return None if sample.parsed is None else not sample.parsed


def is_right(sample: Sample) -> bool | None:
    """By its text and the reference; None where that cannot be said."""
    if not sample.truth or not sample.text:
        return None
    return same_answer(final_answer(sample.text), sample.truth)


def unpaid_though_right(samples: Iterable[Sample]) -> Judge:
    """Of completions with the lowest reward: is the answer right all the same?"""
    lowest, highest = _range(samples)
    return lambda sample: is_right(sample) if sample.reward == lowest and lowest < highest else None


def paid_though_wrong(samples: Iterable[Sample]) -> Judge:
    """Of completions with the highest reward: is the answer another than the reference?"""
    lowest, highest = _range(samples)

    def judge(sample: Sample) -> bool | None:
        right = is_right(sample) if sample.reward == highest and lowest < highest else None
        return None if right is None else not right

    return judge


def _range(samples: Iterable[Sample]) -> tuple[float, float]:
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    return (min(rewards), max(rewards)) if rewards else (0.0, 0.0)
