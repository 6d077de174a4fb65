"""Everything that can be said of a run before it starts: contradictions in its configuration, and what the base model's
own answers foretell."""

from collections.abc import Iterator

import msgspec

from springtide.diagnosis.preflight.base import Base
from springtide.diagnosis.preflight.checks import batch, limits, room, signal, update, watching
from springtide.diagnosis.preflight.finding import Finding
from springtide.diagnosis.preflight.memory import Memory, estimate
from springtide.diagnosis.preflight.plan import Plan
from springtide.diagnosis.preflight.shape import Shape, shape_of
from springtide.diagnosis.preflight.signal import ZeroSignal, predict
from springtide.diagnosis.preflight.truncation import Truncation, of_lengths
from springtide.diagnosis.verdict import Verdict

ORDER = (Verdict.SICK, Verdict.WATCH, Verdict.OK)


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """`not_checked`: what could not be predicted, and what to give for it."""

    source: str
    framework: str
    verdict: Verdict
    findings: tuple[Finding, ...]
    zero_signal: ZeroSignal | None = None
    truncation: Truncation | None = None
    memory: Memory | None = None
    not_checked: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def preflight(
    plan: Plan,
    *,
    base: Base | None = None,
    truncation: Truncation | None = None,
    shape: Shape | None = None,
    device_gib: float | None = None,
) -> Preflight:
    """`truncation` in place of what the base's lengths say; `shape` in place of what the model's name says."""
    base = base or Base()
    size, limit = plan.whole("group_size"), plan.whole("max_completion")
    predicted = predict(base, size) if size and size > 1 else None
    if truncation is None and limit and plan.framework != "springtide":  # whose limit is of one turn
        truncation = of_lengths(base.lengths, limit)
    shape = shape or shape_of(plan)
    memory = None if shape is None else estimate(plan, shape, device_gib=device_gib)
    findings = sorted(_findings(plan, base, predicted, truncation, memory), key=lambda each: ORDER.index(each.verdict))
    return Preflight(
        source=plan.source,
        framework=plan.framework,
        verdict=findings[0].verdict if findings else Verdict.OK,
        findings=tuple(findings),
        zero_signal=predicted,
        truncation=truncation,
        memory=memory,
        not_checked=_not_checked(predicted, truncation, memory),
        notes=(*plan.notes, *base.notes),
    )


def _findings(
    plan: Plan, base: Base, predicted: ZeroSignal | None, truncation: Truncation | None, memory: Memory | None
) -> Iterator[Finding]:
    for check in (batch.check, update.check, limits.check, watching.check):
        yield from check(plan)
    if predicted is not None:
        yield from signal.check(plan, base, predicted)
    yield from signal.check_components(plan, base)
    if truncation is not None:
        yield from limits.check_truncation(plan, truncation)
    if memory is not None:
        yield from room.check(plan, memory)


def _not_checked(predicted: ZeroSignal | None, truncation: Truncation | None, memory: Memory | None) -> dict[str, str]:
    missing = {}
    if predicted is None:
        missing["groups without a signal"] = "give the base model's pass rates: --base FILE, or --pass-rate 0.3:0.2"
    if truncation is None:
        missing["truncated completions"] = "give the base model's lengths: --base FILE, or --answer-tokens 300:1200"
    if memory is None:
        missing["memory"] = "give the model's size: --parameters 7e9"
    return missing
