"""The warm start: supervised training on the environment's demonstrations, from training seeds only."""

from collections.abc import Callable, Sequence
from typing import Any

from springtide.config import Recipe
from springtide.core.demonstration import Demonstration
from springtide.core.errors import UsageError
from springtide.core.message import Message
from springtide.evaluation.count import Count
from springtide.launch.chats import Chat
from springtide.rollout.renderer import Renderer
from springtide.training.batch import Row, row_from_sample
from springtide.training.sft import supervised


class Imitation:
    """Demonstrations as rows, with the count of those that succeed themselves: imitation reaches about that."""

    def __init__(self, rows: list[Row], success: Count) -> None:
        self.rows = rows
        self.success = success


def collect(
    demonstration: Callable[[int], Demonstration | None],
    renderer: Renderer,
    *,
    number: int,
    max_context: int,
    tool_replies_only: bool = False,
) -> Imitation:
    """The first `number` demonstrations.

    UsageError if there are none, if one is longer than an episode may be, or if one is no conversation that an episode
    could be: something is said to the agent, it answers, and with `tool_replies_only` hears from tools alone.
    """
    rows: list[Row] = []
    successes = 0
    for index in range(number):
        shown = demonstration(index)
        if shown is None:
            raise UsageError(
                "warm_start.steps is above 0, but the environment has no demonstrations; set warm_start.steps to 0 or "
                "give the environment a `demonstrate` method."
            )
        problem = _flaw(shown.messages, tool_replies_only=tool_replies_only)
        if problem:
            raise UsageError(f"environment: demonstration {index} {problem}; mend what makes it.")
        sample = renderer.demonstration(shown.messages, shown.tools)
        if len(sample.tokens) > max_context:
            raise UsageError(
                f"rollout.max_context {max_context} is shorter than a demonstration of {len(sample.tokens)} tokens; "
                "raise it."
            )
        rows.append(row_from_sample(sample))
        successes += shown.success
    return Imitation(rows, Count(successes, number))


def _flaw(messages: Sequence[Message], *, tool_replies_only: bool) -> str:
    """Why no episode could go like this; empty if one could."""
    roles = [message.role for message in messages]
    if "assistant" not in roles:
        return "has no assistant message, which is what is imitated"
    if roles[0] == "assistant":
        return "begins with an assistant message, where a system or user message opens an episode"
    heard = set(roles[roles.index("assistant") :]) - {"assistant", "tool"}
    if tool_replies_only and heard:
        return f"answers with a {min(heard)} message, but the environment declares tool_replies_only"
    return ""


def from_chats(chats: Sequence[Chat], renderer: Renderer, *, max_context: int) -> Imitation:
    """Chats of a file, whose success nobody has verified. UsageError if one is longer than an episode may be."""
    rows = []
    for number, chat in enumerate(chats, 1):
        sample = renderer.demonstration(chat.messages, chat.tools)
        if len(sample.tokens) > max_context:
            raise UsageError(
                f"rollout.max_context {max_context} is shorter than chat {number} of {len(sample.tokens)} tokens; "
                "raise it, or leave the chat out."
            )
        rows.append(row_from_sample(sample))
    return Imitation(rows, Count(0, 0))


def warm_start(
    model: Any, imitation: Imitation, recipe: Recipe, on_step: Callable[[int, dict[str, float]], None]
) -> None:
    """Train `model` in place."""
    supervised(
        model,
        imitation.rows,
        config=recipe.warm_start,
        seed=recipe.seed,
        tokens_per_micro_batch=recipe.training.tokens_per_micro_batch,
        on_step=on_step,
    )
