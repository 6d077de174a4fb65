"""The door into a model's own forward: an attention function that `transformers` models call per layer.

Models route attention through a table of functions and hand unknown keyword arguments down to them. The engine passes
its batch along that way, so the same code path serves every architecture; positions, norms, experts and output head
remain the model's own.
"""

from typing import Any, Protocol

import torch
from transformers import AttentionInterface

from springtide.engines.group import AttentionOptions

NAME = "springtide_blocks"
"""The name under which the function is registered."""


class Attending(Protocol):
    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor: ...


def block_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    kv_batch: Attending,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """`query`, `key`, `value` are [1, heads, tokens, width]; the result is [1, tokens, heads, value width]."""
    assert attention_mask is None, "the batch knows who sees what"
    options = AttentionOptions(
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
    )
    layer: Any = module.layer_idx
    packed = [states.transpose(1, 2).squeeze(0) for states in (query, key, value)]
    return kv_batch.attend(layer, packed[0], packed[1], packed[2], options).unsqueeze(0), None


AttentionInterface.register(NAME, block_attention)
