"""Conditions of a rule in words, for the guide: as `condition.py` tests them, said once for all rules."""

from collections.abc import Callable
from typing import Any

from springtide.diagnosis.rule import POINTWISE, Condition, Test

_MANY_TIMES = ("", "", "twice in a row", "three times in a row", "four times in a row", "five times in a row")

_SAID: dict[Test, Callable[[Condition], str]] = {
    "above": lambda c: f"above {_number(c.value)}",
    "below": lambda c: f"below {_number(c.value)}",
    "above_start": lambda c: f"more than {_number(c.value)} times what it was at the beginning, beyond its noise",
    "below_start": lambda c: f"less than {_number(c.value)} of what it was at the beginning, beyond its noise",
    "below_peak": lambda c: f"less than {_number(c.value)} of its best so far, beyond its noise",
    "above_noise": lambda c: f"above its beginning by more than {_number(c.value)} times its own noise",
    "below_noise": lambda c: f"below its beginning by more than {_number(c.value)} times its own noise",
    "above_other": lambda c: f"more than {_number(c.value)} times {_name(c.other)}",
    "below_other": lambda c: f"less than {_number(c.value)} times {_name(c.other)}",
    "rising": lambda c: f"rising{_over(c)} (Mann-Kendall z above {_number(c.value or 3)})",
    "falling": lambda c: f"falling{_over(c)} (Mann-Kendall z below -{_number(c.value or 3)})",
    "flat": lambda c: f"without a trend{_over(c)} (Mann-Kendall z within {_number(c.value or 2)} of 0)",
    "growing": lambda c: f"growing exponentially{_over(c)}, doubling in fewer than {_number(c.value or 10)} values",
    "spike": lambda c: f"more than {_number(c.value)} times its median of the values before, and out of their spread",
    "saw_tooth": lambda c: "down to half of its top and back there",
    "constant": lambda c: "always the same" if c.value == 0 else f"the same within {_number(c.value)} of it",
    "zero": lambda c: "0" if c.value == 0 else f"within {_number(c.value)} of 0",
    "zeros_beyond": lambda c: f"0 more often than {_name(c.other)} makes likely (p below 0.01)",
    "not_finite": lambda c: "not a finite number",
    "at_start_above": lambda c: f"above {_number(c.value)} from the first values on",
    "at_start_below": lambda c: f"below {_number(c.value)} from the first values on",
    "with": lambda c: f"moving with {_name(c.other)}{_over(c)} (rank correlation above {_number(c.value)})",
    "against": lambda c: f"moving against {_name(c.other)}{_over(c)} (rank correlation below -{_number(c.value)})",
    "logged": lambda c: "logged",
    "is": lambda c: " or ".join(_setting(value) for value in c.values),
}


def phrase(condition: Condition) -> str:
    """Such as: `completion/truncated` is above 0.5, twice in a row."""
    what = f"the setting `{condition.setting}`" if condition.setting else _name(condition.metric)
    if condition.smooth > 1:
        what += f", averaged over {condition.smooth} values,"
    said = f"{what} is {'not ' if condition.negate else ''}{_SAID[condition.test](condition)}"
    if condition.run > 1 and condition.metric and condition.test in POINTWISE:
        times = _MANY_TIMES[condition.run] if condition.run < len(_MANY_TIMES) else f"{condition.run} times in a row"
        said += f", {times}"
    if condition.within:
        said += f" (or was within {condition.within} values before)"
    if condition.onset:
        said += " (for the symptom to begin; it may go on without)"
    return said


def _name(metric: str) -> str:
    return f"`{metric}`"


def _number(value: float) -> str:
    return f"{value:g}"


def _over(condition: Condition) -> str:
    return f" over the last {condition.over} values" if condition.over else ""


def _setting(value: Any) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
