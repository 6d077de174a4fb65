"""Batches that do not divide, and groups that cannot teach."""

from collections.abc import Iterator
from math import ceil

from springtide.diagnosis.preflight.finding import Finding, found
from springtide.diagnosis.preflight.plan import Plan
from springtide.diagnosis.verdict import Verdict

GROUP_ESTIMATORS = ("grpo", "rloo", "grpo_passk", "reinforce_plus_plus_baseline", "opo", "grpo_vectorized")
"""verl's estimators that compare the members of a group."""

SMALL = 8
"""Groups in a step below which the step's gradient is mostly noise (section F of the field's practice)."""


def check(plan: Plan) -> Iterator[Finding]:
    yield from _group(plan)
    yield from _trl(plan) if plan.framework == "trl" else ()
    yield from _verl(plan) if plan.framework == "verl" else ()
    groups = groups_per_step(plan)
    if groups is not None and 0 < groups < SMALL:
        name = "per_device_batch" if plan.framework == "trl" else "groups_per_step"
        yield found(
            plan,
            "S02",
            Verdict.WATCH,
            name,
            f"A train step has {groups:.3g} groups: its gradient is mostly noise.",
            _more_groups(plan),
            source="common practice is at least 32 prompts to a step",
            grade="H",
        )


def groups_per_step(plan: Plan) -> float | None:
    """Groups that an optimizer's batch is made of."""
    size = plan.number("group_size")
    if plan.framework != "trl":
        return plan.number("groups_per_step")
    rows, accumulation = plan.number("per_device_batch"), plan.number("accumulation")
    if not size or rows is None or accumulation is None:
        return None
    return rows * accumulation * plan.gpus / size


def _more_groups(plan: Plan) -> str:
    if plan.framework == "trl":
        rows = (plan.number("per_device_batch") or 1) * plan.gpus
        return plan.change("accumulation", ceil(32 * (plan.number("group_size") or 8) / rows))
    return plan.change("groups_per_step", 32)


def _group(plan: Plan) -> Iterator[Finding]:
    size = plan.number("group_size")
    grouped = plan.framework != "verl" or plan.text("estimator") in GROUP_ESTIMATORS
    if size is not None and size < 2 and grouped:
        yield found(
            plan,
            "S10",
            Verdict.SICK,
            "group_size",
            "Groups of one have nothing to be compared with: every advantage is 0.",
            plan.change("group_size", 8),
            source="the advantage is the reward minus its group's mean",
        )
    if plan.number("temperature") == 0 and "temperature" in plan.given:
        yield found(
            plan,
            "S10",
            Verdict.SICK,
            "temperature",
            "At temperature 0 all members of a group are the same completion: nothing can be learnt.",
            plan.change("temperature", 1.0),
            source="greedy decoding",
        )


def _trl(plan: Plan) -> Iterator[Finding]:
    size, rows = plan.whole("group_size"), plan.whole("per_device_batch")
    if not size or not rows:
        return
    steps = plan.whole("steps_per_generation") or plan.whole("accumulation") or 1
    batch = plan.whole("generation_batch") or rows * plan.gpus * steps
    if batch % size:
        yield found(
            plan,
            "S61",
            Verdict.SICK,
            "group_size",
            f"{batch} completions are generated together ({rows} on each of {plan.gpus} devices, {steps} times): that "
            f"is no multiple of the {size} of a group, and TRL refuses to start.",
            plan.change("accumulation", _multiple(rows * plan.gpus, size)),
            source="GRPOConfig.__post_init__",
            grade="C",
        )
    if plan.values.get("generation_batch") is not None and plan.values.get("steps_per_generation") is not None:
        yield found(
            plan,
            "S61",
            Verdict.SICK,
            "generation_batch",
            "It cannot be given together with steps_per_generation.",
            "leave one of the two out",
            source="GRPOConfig.__post_init__",
            grade="C",
        )


def _multiple(rows: int, size: int) -> int:
    """The smallest accumulation with which whole groups come out."""
    return next(count for count in range(1, size + 1) if rows * count % size == 0)


def _verl(plan: Plan) -> Iterator[Finding]:
    prompts, mini, size = plan.whole("groups_per_step"), plan.whole("mini_batch"), plan.whole("group_size")
    if not prompts or not mini or not size:
        return
    if mini > prompts:
        yield found(
            plan,
            "S61",
            Verdict.SICK,
            "mini_batch",
            f"It is larger than {plan.key('groups_per_step')} = {prompts}, and verl refuses to start.",
            plan.change("mini_batch", prompts),
            source="verl/workers/config/actor.py",
            grade="C",
        )
    elif prompts % mini:
        yield found(
            plan,
            "S61",
            Verdict.WATCH,
            "mini_batch",
            f"{plan.key('groups_per_step')} = {prompts} is no multiple of it: the last update of a step is smaller.",
            plan.change("mini_batch", _divisor(prompts, mini)),
            source="the batch is cut into mini-batches",
        )
    if prompts * size % plan.gpus:
        yield found(
            plan,
            "S61",
            Verdict.SICK,
            "groups_per_step",
            f"{prompts} prompts x {size} = {prompts * size} completions do not divide over {plan.gpus} devices.",
            plan.change("groups_per_step", -(-prompts // plan.gpus) * plan.gpus),
            source="verl/utils/config.py asserts it",
            grade="C",
        )
    micro = plan.whole("micro_batch")
    each = mini * size // plan.gpus
    if micro and not plan.truth("dynamic_batch") and (each < micro or each % micro):
        yield found(
            plan,
            "S61",
            Verdict.SICK,
            "micro_batch",
            f"A device has {each} completions of a mini-batch ({mini} x {size} / {plan.gpus}): no multiple of it.",
            plan.change("micro_batch", _divisor(max(each, 1), micro)),
            source="verl/workers/config/actor.py",
            grade="C",
        )


def _divisor(whole: int, most: int) -> int:
    return next(value for value in range(min(most, whole), 0, -1) if whole % value == 0)
