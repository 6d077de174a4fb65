"""The warm start: supervised training on the environment's demonstrations, from training seeds only."""

from collections.abc import Callable, Sequence
from typing import Any

from springtide.config import Recipe
from springtide.core.demonstration import Demonstration
from springtide.core.errors import UsageError
from springtide.core.trajectory import Sample
from springtide.evaluation.count import Count
from springtide.launch.chats import Chat
from springtide.rollout.renderer import Renderer
from springtide.training.sft import supervised


class Imitation:
    """Demonstrations as samples, with their own success count: the ceiling of what imitation can reach."""

    def __init__(self, samples: list[Sample], ceiling: Count) -> None:
        self.samples = samples
        self.ceiling = ceiling


def collect(
    demonstration: Callable[[int], Demonstration | None], renderer: Renderer, *, number: int, max_context: int
) -> Imitation:
    """The first `number` demonstrations. UsageError if there are none, or one is longer than an episode may be."""
    samples: list[Sample] = []
    successes = 0
    for index in range(number):
        shown = demonstration(index)
        if shown is None:
            raise UsageError(
                "warm_start.steps is above 0, but the environment has no demonstrations; set warm_start.steps to 0 or "
                "give the environment a `demonstrate` method."
            )
        sample = renderer.demonstration(shown.messages, shown.tools)
        if len(sample.tokens) > max_context:
            raise UsageError(
                f"rollout.max_context {max_context} is shorter than a demonstration of {len(sample.tokens)} tokens; "
                "raise it."
            )
        samples.append(sample)
        successes += shown.success
    return Imitation(samples, Count(successes, number))


def from_chats(chats: Sequence[Chat], renderer: Renderer, *, max_context: int) -> Imitation:
    """Chats of a file, whose success nobody has verified. UsageError if one is longer than an episode may be."""
    samples = []
    for number, chat in enumerate(chats, 1):
        sample = renderer.demonstration(chat.messages, chat.tools)
        if len(sample.tokens) > max_context:
            raise UsageError(
                f"rollout.max_context {max_context} is shorter than chat {number} of {len(sample.tokens)} tokens; "
                "raise it, or leave the chat out."
            )
        samples.append(sample)
    return Imitation(samples, Count(0, 0))


def warm_start(
    model: Any, imitation: Imitation, recipe: Recipe, on_step: Callable[[int, dict[str, float]], None]
) -> None:
    """Train `model` in place."""
    supervised(
        model,
        imitation.samples,
        config=recipe.warm_start,
        seed=recipe.seed,
        tokens_per_micro_batch=recipe.training.tokens_per_micro_batch,
        on_step=on_step,
    )
