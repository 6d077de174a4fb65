"""Puts what a measure found into the shape of a symptom, with the rule's words, and picks completions to show."""

import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files

from springtide.diagnosis.completions.sample import Sample
from springtide.diagnosis.completions.share import Holds
from springtide.diagnosis.rule import Rule
from springtide.diagnosis.verdict import Cause, Evidence, Excerpt, Symptom, Verdict

SHOWN = 5
"""Completions that a symptom shows."""

EXCERPT = 400
"""Characters of each."""

UNMEASURED = "This rule has not been run on data."

Tell = Callable[[Sample], tuple[str, str]]
"""(the telling part of a completion, what to see in it)"""


@cache
def completion_rules() -> tuple[Rule, ...]:
    """The symptoms that only completions show, in the shape of the others."""
    folder = files("springtide.diagnosis") / "completions" / "rules"
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    return tuple(Rule.model_validate(tomllib.loads(each.read_text())) for each in found)


def finding(
    name: str,
    verdict: Verdict,
    *,
    framework: str,
    evidence: Iterable[Evidence] = (),
    onset: int | None = None,
    rows: Sequence[Excerpt] = (),
) -> Symptom:
    """The symptom of that id."""
    rule = next(each for each in completion_rules() if each.id == name)
    ill = verdict in (Verdict.WATCH, Verdict.SICK)
    ranked = sorted(rule.causes, key=lambda cause: -cause.prior) if ill else []
    causes = tuple(
        Cause(
            id=cause.id,
            title=cause.title,
            score=cause.prior,
            check=cause.check,
            remedy=cause.remedy.get(framework, cause.remedy.get("any", "")),
        )
        for cause in ranked
    )
    return Symptom(
        id=rule.id,
        name=rule.name,
        title=rule.title,
        verdict=verdict,
        onset_step=onset if ill else None,
        evidence=tuple(evidence),
        causes=causes,
        next_check=causes[0].check if causes else "",
        measured=rule.measured or UNMEASURED,
        rows=tuple(rows) if ill else (),
    )


def excerpts(samples: Iterable[Sample], holds: Holds, tell: Tell) -> tuple[Excerpt, ...]:
    """Some of the completions of which it holds, the best paid first, of different groups as far as there are any."""
    found = [sample for sample in samples if holds(sample)]
    found.sort(key=lambda sample: -(sample.reward if sample.reward is not None else float("-inf")))
    seen: set[tuple[int, str]] = set()
    firsts: list[Sample] = []
    others: list[Sample] = []
    for sample in found:
        key = (sample.step, sample.group)
        (others if key in seen else firsts).append(sample)
        seen.add(key)
    return tuple(_excerpt(sample, tell) for sample in (firsts + others)[:SHOWN])


def _excerpt(sample: Sample, tell: Tell) -> Excerpt:
    text, why = tell(sample)
    return Excerpt(place=sample.place, step=sample.step, text=text, why=why, group=sample.group, reward=sample.reward)


def head(text: str) -> str:
    return text[:EXCERPT]


def tail(text: str) -> str:
    return text[-EXCERPT:]


def around(text: str, part: str) -> str:
    """What stands around the first `part` of `text`."""
    start = max(0, text.find(part) - (EXCERPT - len(part)) // 2)
    return text[start : start + max(EXCERPT, len(part))]


def by_step(samples: Sequence[Sample]) -> dict[int, list[Sample]]:
    found: dict[int, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.step, []).append(sample)
    return dict(sorted(found.items()))


def onset(samples: Sequence[Sample], holds: Holds, *, before: float, after: float) -> int | None:
    """The first step from which on the share stays nearer to `after` than to `before`."""
    middle = (before + after) / 2
    first = None
    for step, members in reversed(by_step(samples).items()):
        known = [found for member in members if (found := holds(member)) is not None]
        if known and sum(known) / len(known) < middle:
            break
        first = step
    return first
