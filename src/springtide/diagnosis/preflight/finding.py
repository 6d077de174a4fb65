"""What preflight finds: a setting, its value, what it leads to, and the change that mends it."""

from typing import Any

import msgspec

from springtide.diagnosis.preflight.plan import Plan
from springtide.diagnosis.rule import Grade
from springtide.diagnosis.verdict import Verdict


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`id`: of the symptom that the run would show. `field` and `value` as the framework writes them. OK is for what is
    worth knowing and no fault."""

    id: str
    verdict: Verdict
    field: str
    value: str
    text: str
    remedy: str
    source: str
    grade: Grade


def found(
    plan: Plan, symptom: str, verdict: Verdict, name: str, text: str, remedy: str, *, source: str, grade: Grade = "D"
) -> Finding:
    """A finding about the setting `name`."""
    value = plan.values.get(name)
    return Finding(
        id=symptom,
        verdict=verdict,
        field=plan.key(name),
        value=shown(value) + ("" if name in plan.given else " (default)"),
        text=text,
        remedy=remedy,
        source=source,
        grade=grade,
    )


def shown(value: Any) -> str:
    text = "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."
