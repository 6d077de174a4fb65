"""Causal attention for training on the CPU.

PyTorch's fused kernel on the CPU is slow backwards for the short sequences and small heads of a small model, above all
in bfloat16. Here queries are taken in pieces, each against the keys before its end, as three batched matrix products:
about half of the products of a full square, all of them on the fast path.

Given a `SharedPrefixes`, sequences that begin alike are computed with their beginning once (policy/prefix.py).
Whatever is not plain causal attention over whole sequences on the CPU goes to the kernel that the model used before.
"""

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from springtide.policy.linear import train_with_onednn
from springtide.policy.prefix import SharedPrefixes, gather, lay_out, spread

NAME = "springtide_causal"
"""The name under which the function is registered."""

PIECE = 64
"""Queries per piece."""

LONGEST = 1024
"""Tokens per sequence above which the fused kernel's smaller memory counts for more."""


def prepare_for_training(model: Any) -> None:
    """On the CPU, switch `model` to this attention, in place of PyTorch's fused kernel, and its linear layers to
    faster products."""
    train_with_onednn(model)
    if model.device.type == "cpu" and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(NAME)


def can_share_prefixes(model: Any) -> bool:
    """Whether `model` has this attention in all layers and gives, with a shared prefix, what it gives without."""
    if getattr(model.config, "_attn_implementation", None) != NAME:
        return False
    config = model.config.get_text_config()
    if set(getattr(config, "layer_types", None) or ()) - {"full_attention"} or getattr(config, "sliding_window", None):
        return False
    layout = lay_out([2], [2, 1], [0, 0], device=model.device)
    tokens = torch.tensor([[1, 2, 3, 4, 5]], device=model.device) % config.vocab_size
    with torch.no_grad():
        found = model(input_ids=tokens, use_cache=False, **options_for(layout)).logits[0]
        for row in ([0, 1, 2, 3], [0, 1, 4]):
            whole = model(input_ids=tokens[:, row], use_cache=False).logits[0]
            if not torch.allclose(found[row], whole, atol=1e-4 * float(whole.abs().max().clamp(min=1.0))):
                return False
    return True


def options_for(layout: SharedPrefixes) -> dict[str, Any]:
    """What the forward pass of a model takes besides the packed tokens. The mask is one that no layer reads: without
    it a model would make one of its own, of tokens by tokens."""
    return {
        "position_ids": layout.positions[None],
        "attention_mask": torch.empty(1, 1, 1, 1, device=layout.positions.device),
        "shared_prefixes": layout,
    }


def causal_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    shared_prefixes: SharedPrefixes | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """`query`, `key`, `value` are [batch, heads, tokens, width]; the result is [batch, tokens, heads, width]."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if shared_prefixes is not None:
        return _with_prefixes(query, key, value, scale, shared_prefixes), None
    plain = (
        attention_mask is None
        and query.device.type == "cpu"
        and 1 < query.shape[2] == key.shape[2] <= LONGEST
        and getattr(module, "is_causal", True)
        and not any(options.get(name) for name in ("dropout", "sliding_window", "softcap", "position_bias", "s_aux"))
    )
    if not plain:
        output: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **options
        )
        return output
    return _in_pieces(query, key, value, scale).transpose(1, 2), None


def _with_prefixes(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, layout: SharedPrefixes
) -> torch.Tensor:
    """[1, heads, tokens, width] as `layout` packs them; the result is [1, tokens, heads, width]."""
    cut = len(layout.prefix_places)
    packed = [each[0].transpose(0, 1) for each in (query, key, value)]
    rows = [spread(each[cut:], layout.row_places, layout.rows, layout.row_length) for each in packed]
    if cut == 0:
        return gather(_in_pieces(rows[0], rows[1], rows[2], scale), layout.row_places)[None]
    shared = [spread(each[:cut], layout.prefix_places, layout.prefixes, layout.prefix_length) for each in packed]
    keys, values = (
        torch.cat([before.index_select(0, layout.prefix_of_row), own], dim=2)
        for before, own in zip(shared[1:], rows[1:], strict=True)
    )
    beginnings = gather(_in_pieces(shared[0], shared[1], shared[2], scale), layout.prefix_places)
    continuations = gather(_in_pieces(rows[0], keys, values, scale, layout.hidden), layout.row_places)
    return torch.cat([beginnings, continuations])[None]


def _in_pieces(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    hidden: torch.Tensor | None = None,
) -> torch.Tensor:
    """Queries [batch, heads, length, width] are the newest of the keys. `hidden` [batch, 1, n] is added to the scores
    of the first n keys."""
    batch, heads, length, width = query.shape
    kv_heads, reach = key.shape[1:3]
    shared, before = heads // kv_heads, reach - length
    keys = key.reshape(-1, reach, width)
    values = value.reshape(-1, reach, value.shape[-1])
    queries = query.reshape(-1, shared, length, width)
    pieces = []
    for start in range(0, length, PIECE):
        end = min(start + PIECE, length)
        seen = before + end
        rows = queries[:, :, start:end].reshape(-1, shared * (end - start), width)
        mask = torch.full((end - start, seen), float("-inf"), dtype=query.dtype)
        mask = mask.triu_(before + start + 1).repeat(shared, 1)
        scores = torch.baddbmm(mask, rows, keys[:, :seen].transpose(1, 2), alpha=scale)
        if hidden is not None:
            scores[..., : hidden.shape[-1]] += hidden.repeat_interleave(kv_heads, dim=0)
        attended = torch.bmm(scores.softmax(dim=-1), values[:, :seen])
        pieces.append(attended.view(batch, heads, end - start, -1))
    return torch.cat(pieces, dim=2)


AttentionInterface.register(NAME, causal_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
