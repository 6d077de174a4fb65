"""Which causes are the likeliest, over all symptoms of a run that hold.

A cause's score is a log-odds without scale: its prior, what each symptom that it may bring about adds, and what each
of its signs adds. A symptom that is only WATCH adds less. Causes that no symptom of the run names are no candidates.
"""

import math
from collections.abc import Mapping, Sequence

from springtide.diagnosis.examination import Examination
from springtide.diagnosis.rule import KnownCause, Rule
from springtide.diagnosis.verdict import Cause, Verdict

WATCHED = 0.4
"""What a WATCH adds, as a share of what the same symptom adds when it is SICK."""

REPEATED = 0.3
"""What further symptoms of a cause add, as a share."""

ASIDE = 1.5
"""What a cause loses that explains nothing of what makes the run SICK."""


def rank(examination: Examination, holding: Mapping[str, tuple[Rule, Verdict]], onset: int | None) -> tuple[Cause, ...]:
    """`holding`: the rules whose symptoms are there, by id; `onset`: when the first of the worst of them began."""
    named: dict[str, list[float]] = {}
    known: dict[str, KnownCause] = {}
    for rule, verdict in holding.values():
        for possible in rule.causes:
            share = 1.0 if verdict is Verdict.SICK else WATCHED
            named.setdefault(possible.id, []).append(possible.weight * share)
            known[possible.id] = possible.known
    if any(verdict is Verdict.SICK for _, verdict in holding.values()):
        grave = {each.id for rule, verdict in holding.values() if verdict is Verdict.SICK for each in rule.causes}
        for id_, weights in named.items():
            weights.append(0.0 if id_ in grave else -ASIDE / REPEATED)
    found = [_scored(examination, known[id_], _joint(each), holding, onset) for id_, each in named.items()]
    return tuple(sorted(found, key=lambda cause: (-cause.score, cause.id)))


def _joint(weights: list[float]) -> float:
    """Symptoms of one run are of one event for the most part: what the second one adds is little."""
    return max(weights) + REPEATED * (sum(weights) - max(weights))


def of_symptom(rule: Rule, ranked: Sequence[Cause]) -> tuple[Cause, ...]:
    """Those of the run's causes that this symptom may come from, in the same order but for what it says itself."""
    weight = {each.id: each.weight for each in rule.causes}
    return tuple(
        sorted((each for each in ranked if each.id in weight), key=lambda each: -each.score - 0.5 * weight[each.id])
    )


def _scored(
    examination: Examination,
    known: KnownCause,
    support: float,
    holding: Mapping[str, tuple[Rule, Verdict]],
    onset: int | None,
) -> Cause:
    score, said = known.prior + support, []
    for sign in known.signs:
        if sign.symptom and sign.symptom not in holding:
            continue
        if sign.before:
            left = examination.left_start(sign.before)
            if left is None or left >= (math.inf if onset is None else onset):
                continue
        if examination.sign_holds(sign):
            score += sign.weight
            said.append(sign.says)
    framework = examination.frame.framework
    return Cause(
        id=known.id,
        title=known.title,
        score=round(score, 3),
        signs=tuple(said),
        check=known.check,
        remedy=known.remedy.get(framework, known.remedy.get("any", "")),
    )
