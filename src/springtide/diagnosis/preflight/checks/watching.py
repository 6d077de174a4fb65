"""What will not be seen: evaluations, dumps and metrics that are off, and checkpoints to go back to."""

from collections.abc import Iterator

from springtide.diagnosis.preflight.finding import Finding, found
from springtide.diagnosis.preflight.plan import Plan
from springtide.diagnosis.verdict import Verdict

PART = 20
"""A checkpoint every twentieth of the run is what rolling back to before the first mover asks for; half as many are let
pass."""


def check(plan: Plan) -> Iterator[Finding]:
    yield from _evaluation(plan)
    yield from _records(plan)
    yield from _checkpoints(plan)


def _evaluation(plan: Plan) -> Iterator[Finding]:
    off = {
        "trl": plan.text("eval_strategy").lower() in ("no", "false", "intervalstrategy.no"),
        "verl": (plan.number("eval_every") or 0) <= 0,
        "springtide": not plan.number("eval_tasks"),
    }[plan.framework]
    name = {"trl": "eval_strategy", "verl": "eval_every", "springtide": "eval_tasks"}[plan.framework]
    remedy = {
        "trl": 'eval_strategy = "steps", eval_steps = 50, eval_dataset of at least 200 tasks',
        "verl": "trainer.test_freq=20, data.val_files of at least 200 tasks",
        "springtide": "evaluation.tasks = 200",
    }[plan.framework]
    if off:
        yield found(
            plan,
            "S04",
            Verdict.WATCH,
            name,
            "Nothing is held out: a reward that rises cannot be told from a reward that is hacked.",
            remedy,
            source="train reward and held-out accuracy correlated by .13 over 12 runs",
            grade="M",
        )
    temperature, evaluated = plan.number("temperature"), plan.number("eval_temperature")
    if not off and temperature and evaluated is not None and evaluated != temperature:
        yield found(
            plan,
            "S48",
            Verdict.WATCH,
            "eval_temperature",
            f"Training samples at {temperature:g}: compare evaluations with each other, and not with the reward.",
            plan.change("eval_temperature", f"{temperature:g}"),
            source="arXiv 2504.07086",
            grade="P",
        )


def _records(plan: Plan) -> Iterator[Finding]:
    if plan.framework in ("trl", "verl") and not plan.values.get("dump_rollouts"):
        yield found(
            plan,
            "S16",
            Verdict.WATCH,
            "dump_rollouts",
            "Completions are not kept: hacking and loops show nowhere else.",
            "log_completions = True" if plan.framework == "trl" else "trainer.rollout_data_dir=rollouts",
            source="within-completion metrics were blind in a fully hacked run",
            grade="M",
        )
    if plan.framework == "verl" and not plan.truth("engine_logprobs"):
        yield found(
            plan,
            "S39",
            Verdict.WATCH,
            "engine_logprobs",
            "The gap between the engine's and the trainer's log-probs is not logged: stale weights and wrong sampling "
            "stay unseen.",
            plan.change("engine_logprobs", True),
            source="verl docs/algo/rollout_corr.md",
            grade="C",
        )
    if plan.framework == "trl" and plan.truth("use_vllm") and not plan.truth("importance_correction"):
        yield found(
            plan,
            "S39",
            Verdict.WATCH,
            "importance_correction",
            "The gap between vLLM's and the trainer's log-probs is neither corrected nor logged.",
            plan.change("importance_correction", True),
            source="TRL logs sampling/* only with it",
            grade="C",
        )


def _checkpoints(plan: Plan) -> Iterator[Finding]:
    every, steps = plan.number("save_every"), plan.number("steps")
    off = plan.text("save_strategy").lower() == "no" or (plan.framework == "verl" and (every or 0) <= 0)
    if off:
        yield found(
            plan,
            "S06",
            Verdict.WATCH,
            "save_strategy" if plan.framework == "trl" else "save_every",
            "No checkpoint is kept: after a collapse there is nothing to go back to.",
            'save_strategy = "steps", save_steps = 20' if plan.framework == "trl" else plan.change("save_every", 20),
            source="go back to before the first mover",
        )
    elif every and every >= 1 and steps and steps > 0 and every > max(10, 2 * steps / PART):
        yield found(
            plan,
            "S06",
            Verdict.WATCH,
            "save_every",
            f"A run of {steps:g} steps keeps a checkpoint every {every:g}: going back loses over a tenth of it.",
            plan.change("save_every", max(1, int(steps / PART))),
            source="of nine collapses the first mover came 0 to 21 logs before the fall",
            grade="M",
        )
