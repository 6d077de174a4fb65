"""What the base model's rates foretell: groups without a signal, tasks too hard or too easy, too little variety."""

from collections.abc import Iterator

import numpy as np

from springtide.diagnosis.preflight.base import Base
from springtide.diagnosis.preflight.finding import Finding, found
from springtide.diagnosis.preflight.plan import Plan
from springtide.diagnosis.preflight.signal import ZeroSignal, smallest_group
from springtide.diagnosis.verdict import Verdict

WATCHED, SICK = 0.5, 0.8
"""Predicted shares of groups without a signal."""

AIM = 0.5

HOPELESS = 0.95
"""All-wrong groups of the first steps, as in S01."""

DOMINATES = 0.8
"""Share of the reward's variance that one component has (S18)."""

TRIES = 4
"""Attempts from which pass@k can be compared with pass@1."""

NARROW = 0.05


def check(plan: Plan, base: Base, predicted: ZeroSignal) -> Iterator[Finding]:
    hopeless = predicted.all_wrong > HOPELESS
    if predicted.share > WATCHED:
        kind = "all wrong" if predicted.all_wrong > predicted.all_right else "all right"
        filtered = plan.truth("filter_zero_variance")
        around = f" ({predicted.low:.0%} to {predicted.high:.0%})" if predicted.low is not None else ""
        yield found(
            plan,
            "S01" if hopeless else "S09" if kind == "all wrong" else "S08",
            Verdict.SICK if predicted.share > SICK and not filtered else Verdict.WATCH,
            "group_size",
            f"{predicted.share:.0%}{around} of groups will carry no signal, most of them {kind}."
            + (" They are filtered, at the cost of generating others." if filtered else ""),
            _remedy(plan, base, predicted, kind),
            source="p^G + (1 - p)^G over the tasks",
        )
    yield from _variety(plan, base)


def _remedy(plan: Plan, base: Base, predicted: ZeroSignal, kind: str) -> str:
    tasks = "drop tasks with a pass rate above .9" if kind == "all right" else "drop tasks with a pass rate below .1"
    size = smallest_group(base, AIM)
    if size is not None and size > predicted.group_size:
        return f"{plan.change('group_size', size)}, or {tasks}"
    return f"{tasks}" + (", or a warm start" if kind == "all wrong" else "")


def _variety(plan: Plan, base: Base) -> Iterator[Finding]:
    """pass@k close to pass@1: attempts at a task all end the same way."""
    tried = [task for task in base.tasks if task.n is not None and task.n >= TRIES]
    if len(tried) < 20:
        return
    once = float(np.mean([task.rate for task in tried]))
    ever = float(np.mean([task.k > 0 for task in tried]))
    if 0.05 < once < 0.9 and ever - once < NARROW:
        yield found(
            plan,
            "S22",
            Verdict.WATCH,
            "temperature",
            f"The base model solves {once:.0%} of tasks at once and {ever:.0%} in {tried[0].n} attempts: it always "
            "says the same, and there is little to reinforce.",
            f"an earlier checkpoint of the supervised training, or {plan.change('temperature', 1.2)}",
            source="arXiv 2606.18487",
            grade="P",
        )


def check_components(plan: Plan, base: Base) -> Iterator[Finding]:
    spreads = {name: float(np.std(values)) for name, values in base.components.items() if len(values) > 1}
    for name, values in base.components.items():
        if len(values) >= 8 and spreads[name] == 0:
            yield _about(
                "S12",
                name,
                f"{values[0]:g}",
                "It is the same for all completions of the base model: it trains nothing.",
                "loosen its pattern, or say in the prompt what it asks for; drop it if that is on purpose",
            )
    total = sum(spread**2 for spread in spreads.values())
    alive = {name: spread for name, spread in spreads.items() if spread > 0}
    for name, spread in alive.items():
        if len(alive) > 1 and spread**2 > DOMINATES * total:
            yield _about(
                "S18",
                name,
                f"standard deviation {spread:.3g}",
                f"It has {spread**2 / total:.0%} of the variance of all components: the others hardly count.",
                "scale the components to equal variance, or let one be a condition of the other",
            )
    yield from _weights(plan)


def _weights(plan: Plan) -> Iterator[Finding]:
    weights, functions = plan.values.get("reward_weights"), plan.whole("reward_functions")
    if not isinstance(weights, list | tuple):
        return
    if functions is not None and functions != len(weights):
        yield found(
            plan,
            "S61",
            Verdict.SICK,
            "reward_weights",
            f"There are {functions} reward functions and {len(weights)} weights, and TRL refuses to start.",
            f"give {functions} weights",
            source="GRPOTrainer.__init__",
            grade="C",
        )
    dead = [index for index, weight in enumerate(weights) if weight == 0]
    if dead:
        yield found(
            plan,
            "S12",
            Verdict.SICK if len(dead) == len(weights) else Verdict.WATCH,
            "reward_weights",
            f"Reward function {', '.join(str(index + 1) for index in dead)} has weight 0: it trains nothing.",
            "nothing to mend if it is there to be watched",
            source="the reward is the weighted sum",
        )


def _about(symptom: str, name: str, value: str, text: str, remedy: str) -> Finding:
    return Finding(
        id=symptom,
        verdict=Verdict.WATCH,
        field=f"reward component {name}",
        value=value,
        text=text,
        remedy=remedy,
        source="measured on the base model's completions",
        grade="D",
    )
