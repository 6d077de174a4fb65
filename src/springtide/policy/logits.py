"""Logits only where someone reads them.

With a small hidden size and a large vocabulary, the output head is most of the work, yet training reads it only at
sampled tokens. The model's own forward runs unchanged; a hook in front of the output head picks the hidden states
that are asked for, so scaling or soft-capping that a model applies to its logits stays exact.
"""

from typing import Any

import torch

from springtide.policy.attention import options_for
from springtide.policy.prefix import SharedPrefixes


def selected_logits(
    model: Any, tokens: torch.Tensor, positions: torch.Tensor, shared: SharedPrefixes | None = None
) -> torch.Tensor:
    """Logits at `positions`, differentiable.

    `tokens` is [batch, length], padded on the right; causal attention makes a padding mask unnecessary, as no position
    before the padding sees it. With `shared` it is [1, tokens], packed as that says. `positions` is [n] into the
    flattened tokens. Returns [n, vocabulary].
    """

    def select(_: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        (hidden,) = arguments
        return (hidden.reshape(-1, hidden.shape[-1])[positions].unsqueeze(0),)

    options = {} if shared is None else options_for(shared)
    hook = model.get_output_embeddings().register_forward_pre_hook(select)
    try:
        logits: torch.Tensor = model(input_ids=tokens, use_cache=False, **options).logits
    finally:
        hook.remove()
    return logits.squeeze(0)
