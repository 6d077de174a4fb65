"""Rows of dumps, one JSON object or table row for each completion: which fields mean what, by framework.

A row is of the first format whose signature it has. The generic format takes what people write themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from springtide.diagnosis.completions.content import Row, first, number, numbers, table, text_of, truth_value, whole
from springtide.diagnosis.completions.sample import KEPT_OF_PROMPT, Sample, shortened

INVALID = ("[invalid]", "none", "null", "n/a", "")
"""What graders put in place of an answer that they could not read, in lower case."""

Reader = Callable[[Row, str, int], "Sample | None"]
"""(row, place, step where the row has none) to the sample, None if it holds no completion."""


@dataclass(frozen=True)
class Fields:
    """Names of fields; the first that a row has counts. `signature`: names that a row of the format has. `answer`: what
    the grader read out of the completion. `parsed`: whether it could."""

    framework: str
    signature: tuple[str, ...]
    prompt: tuple[str, ...]
    text: tuple[str, ...]
    reward: tuple[str, ...]
    group: tuple[str, ...] = ()
    step: tuple[str, ...] = ("step", "global_step")
    truth: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    truncated: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    parsed: tuple[str, ...] = ("parse_ok", "parsed", "format_ok")
    components: tuple[str, ...] = field(default=("metrics", "rewards", "reward_metrics"))


VERL = Fields(
    framework="verl",
    signature=("input", "output", "score"),
    prompt=("input",),
    text=("output",),
    reward=("score", "reward"),
    group=("uid", "request_id_group"),
    truth=("gts", "ground_truth"),
    answer=("pred",),
)
TRL = Fields(
    framework="trl",
    signature=("prompt", "completion"),
    prompt=("prompt",),
    text=("completion",),
    reward=("reward", "rewards"),
    truth=("solution", "answer", "ground_truth", "gold_answer"),
    tokens=("completion_tokens", "completion_length", "num_tokens"),
    truncated=("is_truncated", "truncated"),
)
PRIME_RL = Fields(
    framework="prime_rl",
    signature=("example_id", "prompt", "completion", "reward"),
    prompt=("prompt",),
    text=("completion",),
    reward=("reward",),
    group=("example_id",),
    truth=("answer",),
    tokens=("completion_tokens", "completion_len", "decode_len"),
    truncated=("is_truncated",),
)
GENERIC = Fields(
    framework="generic",
    signature=(),
    prompt=("prompt", "question", "input", "problem", "query", "messages", "prompt_text"),
    text=("completion", "response", "output", "generation", "text", "answer_text", "completion_text", "solution_str"),
    reward=("reward", "score", "total_reward", "final_reward", "rewards"),
    group=("group", "group_id", "group_idx", "example_id", "prompt_id", "uid", "task_id"),
    step=("step", "global_step", "iteration", "iter", "train_step"),
    truth=("ground_truth", "gts", "gold", "gold_answer", "answer", "target", "solution", "label"),
    tokens=("completion_tokens", "num_tokens", "response_length", "completion_length", "num_completion_tokens"),
    truncated=("is_truncated", "truncated", "clipped"),
    answer=("pred", "extracted_answer", "parsed_answer"),
)
FORMATS = (VERL, PRIME_RL, TRL, GENERIC)


def reader_of(row: Row) -> tuple[str, Reader]:
    """The framework that writes such rows, and how to read them."""
    if isinstance(row.get("nodes"), list):
        return "prime_rl", read_trace
    found = next(fields for fields in FORMATS if all(name in row for name in fields.signature))
    return found.framework, lambda row, place, step: read_fields(found, row, place, step)


def read_fields(fields: Fields, row: Row, place: str, step: int) -> Sample | None:
    text = first(row, fields.text)
    if text is None:
        return None
    own = whole(first(row, fields.step))
    prompt = text_of(first(row, fields.prompt))
    reward, components = _reward(fields, row)
    answer = first(row, fields.answer)
    parsed = truth_value(first(row, fields.parsed))
    if parsed is None and isinstance(answer, str):
        parsed = answer.strip().lower() not in INVALID
    return Sample(
        step=step if own is None else own,
        group=_group(first(row, fields.group), prompt),
        text=shortened(text_of(text)),
        prompt=shortened(prompt, KEPT_OF_PROMPT),
        reward=reward,
        tokens=whole(first(row, fields.tokens)),
        truncated=truth_value(first(row, fields.truncated)),
        parsed=parsed,
        truth=_truth(first(row, fields.truth)),
        components=components,
        place=place,
    )


def read_trace(row: Row, place: str, step: int) -> Sample | None:
    """A conversation as a tree of messages, some of them sampled, as newer prime-rl keeps it."""
    nodes = [node for node in row["nodes"] if isinstance(node, dict)]
    sampled = [text_of(node.get("message")) for node in nodes if node.get("sampled")]
    if not sampled:
        return None
    prompt = text_of([node.get("message") for node in nodes if not node.get("sampled")][:2])
    components = numbers(table(row.get("rewards")))
    data = table(table(row.get("task")).get("data"))
    stop = text_of(row.get("stop_condition")).lower()
    return Sample(
        step=step,
        group=_group(first(data, ("example_id", "idx", "id", "key")), prompt),
        text=shortened("\n".join(sampled)),
        prompt=shortened(prompt, KEPT_OF_PROMPT),
        reward=sum(components.values()) if components else number(row.get("reward")),
        truncated=any(word in stop for word in ("trunc", "length", "max_")) if stop else None,
        truth=_truth(first(data, ("answer", "ground_truth"))),
        components=components,
        place=place,
    )


def _reward(fields: Fields, row: Row) -> tuple[float | None, dict[str, float]]:
    """The total, or the sum of what is paid for each, and what else the grader counted."""
    value = first(row, fields.reward)
    components: dict[str, float] = {}
    for name in fields.components:
        components |= numbers(table(row.get(name)))
    named = {*fields.step, *fields.tokens, *fields.truncated, *fields.parsed, *fields.group, *fields.truth, "advantage"}
    components |= numbers(row, without={*named, *fields.reward})
    if isinstance(value, dict):
        paid = numbers(value)
        return (sum(paid.values()) if paid else None), components
    total = number(value)
    if total is None and "advantage" in row and components:
        total = sum(components.values())  # TRL: a column for each reward function, weights not in the table
    return total, components


def _group(named: Any, prompt: str) -> str:
    if named is not None and (name := str(named)):
        return name[:200]
    return blake2b(prompt.encode(errors="replace"), digest_size=8).hexdigest()


def _truth(value: Any) -> str:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)[:2000]
    return text_of(value)[:2000]
