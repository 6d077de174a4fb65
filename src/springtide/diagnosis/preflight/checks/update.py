"""Learning rates, KL and clipping that contradict each other, or do nothing."""

from collections.abc import Iterator

from springtide.diagnosis.preflight.checks.batch import groups_per_step
from springtide.diagnosis.preflight.finding import Finding, found
from springtide.diagnosis.preflight.memory import lora_rank
from springtide.diagnosis.preflight.plan import Plan
from springtide.diagnosis.verdict import Verdict

LORA_LOW, LORA_HIGH = 1e-6, 1e-3
FULL_HIGH = 5e-5
"""Learning rates outside of which runs do not move, or break; ten times as much for adapters (TRL #2872)."""

LARGE = 3e-6

EPOCHS = 10
"""Passes over the same tasks from which on they are learnt by heart."""


def check(plan: Plan) -> Iterator[Finding]:
    yield from _learning_rate(plan)
    yield from _kl(plan)
    yield from _clip(plan)
    yield from _length(plan)


def _learning_rate(plan: Plan) -> Iterator[Finding]:
    rate, rank = plan.number("learning_rate"), lora_rank(plan)
    if rate is None or plan.text("model_type") == "tiny":
        return
    if rate <= 0:
        yield found(
            plan,
            "S32",
            Verdict.SICK,
            "learning_rate",
            "Nothing will move.",
            plan.change("learning_rate", 1e-6),
            source="the step is proportional to it",
        )
    elif rank and rate < LORA_LOW:
        yield found(
            plan,
            "S61",
            Verdict.SICK,
            "learning_rate",
            f"Adapters of rank {rank:g} take about ten times the rate of full training: at this one they do not move.",
            plan.change("learning_rate", "1e-5"),
            source="TRL #2872; common practice is 1e-5 to 1e-4",
            grade="I",
        )
    elif rate > (LORA_HIGH if rank else FULL_HIGH):
        yield found(
            plan,
            "S61",
            Verdict.WATCH,
            "learning_rate",
            "It is far above what policies of this kind are trained with: expect entropy or length to run away.",
            plan.change("learning_rate", "1e-5" if rank else "1e-6"),
            source="common practice is 1e-5 to 1e-4 for adapters and 1e-6 for all weights",
            grade="H",
        )
    warmup, steps = plan.number("warmup_steps"), plan.number("steps")
    if warmup and steps and warmup >= steps > 0:
        yield found(
            plan,
            "S32",
            Verdict.SICK,
            "warmup_steps",
            f"The run ends at step {steps:g}, before the learning rate has reached its value.",
            plan.change("warmup_steps", max(1, int(steps // 20))),
            source="the schedule",
        )


def _kl(plan: Plan) -> Iterator[Finding]:
    coefficient = plan.number("kl_coefficient")
    if plan.framework == "trl" and coefficient == 0 and plan.truth("sync_reference"):
        yield found(
            plan,
            "S61",
            Verdict.SICK,
            "sync_reference",
            f"{plan.key('kl_coefficient')} = 0: no reference is loaded that could be synchronised.",
            f"{plan.change('kl_coefficient', 0.001)}, or {plan.change('sync_reference', False)}",
            source="TRL loads a reference only where beta is not 0",
            grade="C",
        )
    if plan.framework != "verl":
        return
    in_loss, in_reward = plan.truth("kl_in_loss"), plan.truth("kl_in_reward")
    if in_loss and not coefficient:
        yield found(
            plan,
            "S61",
            Verdict.WATCH,
            "kl_in_loss",
            f"{plan.key('kl_coefficient')} = 0: a reference is loaded and computed, and changes nothing.",
            f"{plan.change('kl_in_loss', False)}, or {plan.change('kl_coefficient', 0.001)}",
            source="verl loads a reference where it is true",
            grade="C",
        )
    if in_loss and in_reward:
        yield found(
            plan,
            "S61",
            Verdict.WATCH,
            "kl_in_reward",
            "The KL is subtracted from the reward and added to the loss: it counts twice.",
            plan.change("kl_in_reward", False),
            source="verl's documentation recommends one of the two",
            grade="C",
        )
    if not in_loss and "kl_coefficient" in plan.given and coefficient:
        yield found(
            plan,
            "S61",
            Verdict.WATCH,
            "kl_coefficient",
            f"{plan.key('kl_in_loss')} is off: the coefficient has no effect.",
            plan.change("kl_in_loss", True),
            source="verl/workers/actor reads it only then",
            grade="C",
        )


def updates_per_batch(plan: Plan) -> float:
    """Optimizer steps over the same completions, in turn or in parts."""
    if plan.framework == "verl":
        prompts, mini = plan.number("groups_per_step"), plan.number("mini_batch")
        parts = prompts / mini if prompts and mini else 1.0
        return max(1.0, parts) * (plan.number("updates_epochs") or 1.0)
    updates = plan.number("updates_per_batch") or 1.0
    if plan.framework == "trl" and (steps := plan.number("steps_per_generation")):
        updates *= max(1.0, steps / (plan.number("accumulation") or 1.0))
    return updates


def _clip(plan: Plan) -> Iterator[Finding]:
    if updates_per_batch(plan) > 1:
        return
    low, high = plan.number("clip_low"), plan.number("clip_high")
    if plan.framework == "springtide" and plan.values.get("importance_cap") is None:
        return  # the ratio is then taken to the policy that sampled
    if high is not None and high != low and "clip_high" in plan.given:
        yield found(
            plan,
            "S25",
            Verdict.WATCH,
            "clip_high",
            "There is one update to a batch: the ratio is 1 and nothing is ever clipped, so that clip-higher does "
            "nothing against a fall of entropy.",
            _more_updates(plan),
            source="the ratio of the first update is 1",
        )
        return
    yield found(
        plan,
        "S25",
        Verdict.OK,
        "updates_per_batch" if plan.framework != "verl" else "mini_batch",
        "There is one update to a batch: the clip fraction will be 0 throughout, and that is no sign of anything.",
        "nothing to mend",
        source="the ratio of the first update is 1",
    )


def _more_updates(plan: Plan) -> str:
    if plan.framework == "verl":
        prompts = groups_per_step(plan) or 2
        return plan.change("mini_batch", max(1, int(prompts // 2)))
    return plan.change("updates_per_batch", 2)


def _length(plan: Plan) -> Iterator[Finding]:
    epochs, steps = plan.number("epochs"), plan.number("steps")
    if epochs and epochs > EPOCHS and "epochs" in plan.given and not (steps and steps > 0):
        yield found(
            plan,
            "S04",
            Verdict.WATCH,
            "epochs",
            "So many passes over the same tasks are learnt by heart: the training reward will say nothing.",
            f"more tasks, or {plan.change('epochs', EPOCHS)}, and an evaluation on others",
            source="common practice",
            grade="H",
        )
