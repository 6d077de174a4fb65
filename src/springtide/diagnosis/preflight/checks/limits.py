"""Lengths that do not fit into each other, and masks that leave nothing to learn from."""

from collections.abc import Iterator

from springtide.diagnosis.preflight.finding import Finding, found
from springtide.diagnosis.preflight.plan import Plan
from springtide.diagnosis.preflight.truncation import Truncation
from springtide.diagnosis.verdict import Verdict

WATCHED, SICK = 0.1, 0.5
"""Predicted shares of truncated completions."""

MASKED = 0.3
"""Of them from which on a mask takes too much away (S33)."""


def check(plan: Plan) -> Iterator[Finding]:
    completion, prompt, context = (plan.number(name) for name in ("max_completion", "max_prompt", "max_context"))
    if plan.framework != "springtide" and completion and context and completion + (prompt or 0) > context:
        both = f"{prompt:g} + {completion:g}" if prompt else f"{completion:g}"
        yield found(
            plan,
            "S61",
            Verdict.SICK,
            "max_context",
            f"Prompt and completion take up to {both} tokens: longer ones are refused or cut by the engine.",
            plan.change("max_context", int(completion + (prompt or 0))),
            source="the engine's limit is of prompt and completion together",
            grade="C",
        )
    rows = plan.number("micro_batch_tokens")
    if (
        plan.framework == "verl"
        and plan.truth("dynamic_batch")
        and rows
        and completion
        and rows < completion + (prompt or 0)
    ):
        yield found(
            plan,
            "S61",
            Verdict.SICK,
            "micro_batch_tokens",
            f"One sequence may have {completion + (prompt or 0):g} tokens and would fit into no micro-batch.",
            plan.change("micro_batch_tokens", int(2 * (completion + (prompt or 0)))),
            source="verl's dynamic batches hold whole sequences",
            grade="C",
        )
    tokens = plan.number("engine_batch_tokens")
    if (
        plan.framework == "verl"
        and not plan.truth("chunked_prefill")
        and tokens
        and prompt
        and tokens < prompt + (completion or 0)
    ):
        yield found(
            plan,
            "S61",
            Verdict.SICK,
            "engine_batch_tokens",
            "Without chunked prefill a sequence has to fit into it.",
            plan.change("chunked_prefill", True),
            source="vLLM's scheduler",
            grade="C",
        )


def check_truncation(plan: Plan, predicted: Truncation) -> Iterator[Finding]:
    masked = plan.truth("mask_truncated")
    if masked and predicted.share > MASKED:
        yield found(
            plan,
            "S10",
            Verdict.SICK,
            "mask_truncated",
            f"{predicted.share:.0%} of completions will be cut off and then masked: groups lose most of their members, "
            "and steps may have no gradient at all.",
            f"{plan.change('max_completion', predicted.enough)}, or {plan.change('mask_truncated', False)} with a soft "
            "penalty for length",
            source="one run with zero gradients at a truncated share of .97",
            grade="I",
        )
    if predicted.share <= WATCHED:
        return
    yield found(
        plan,
        "S61",
        Verdict.SICK if predicted.share > SICK else Verdict.WATCH,
        "max_completion",
        f"{predicted.share:.0%} of the base model's completions will be cut off before their end (median "
        f"{predicted.median:,.0f}, 95th percentile {predicted.p95:,.0f} tokens).",
        plan.change("max_completion", predicted.enough),
        source="below a tenth at the start (S01)",
        grade="H",
    )
