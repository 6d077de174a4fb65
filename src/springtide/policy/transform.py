"""From logits to the distribution that is sampled: temperature, then top-k, then top-p, then renormalised.

The engine samples from it and the trainer recomputes the log-probs of the same distribution, so both call this.
"""

import torch

Setting = float | int | torch.Tensor


def transform_logits(
    logits: torch.Tensor, temperature: Setting = 1.0, top_k: Setting = 0, top_p: Setting = 1.0
) -> torch.Tensor:
    """Log-probs [..., V] in float32 of the distribution after the settings; excluded tokens have -inf.

    A setting is a number, or a tensor [...] with one value per row. `top_k` 0 and `top_p` 1 exclude nothing; equal
    logits are ranked by token id. Temperature 0 (greedy) gives the untruncated distribution at temperature 1.
    Gradients flow to `logits`; which tokens are kept is a constant to them.
    """
    scaled = logits.float()
    greedy = None
    if isinstance(temperature, torch.Tensor):
        greedy = (temperature == 0).unsqueeze(-1)
        scaled = scaled / torch.where(temperature == 0, 1.0, temperature).to(scaled.dtype).unsqueeze(-1)
    elif temperature == 0:
        return scaled.log_softmax(-1)
    elif temperature != 1:
        scaled = scaled / temperature
    if isinstance(top_k, torch.Tensor) or isinstance(top_p, torch.Tensor) or top_k > 0 or top_p < 1:
        kept = _kept(scaled.detach(), top_k, top_p)
        if greedy is not None:
            kept |= greedy
        scaled = scaled.masked_fill(~kept, float("-inf"))
    return scaled.log_softmax(-1)


def _kept(scaled: torch.Tensor, top_k: Setting, top_p: Setting) -> torch.Tensor:
    """Which tokens [..., V] stay: the `top_k` likeliest, and of those the smallest set with mass `top_p`."""
    ranked, order = scaled.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(scaled.shape[-1], device=scaled.device)
    limit = torch.as_tensor(top_k, device=scaled.device).unsqueeze(-1)
    kept = (ranks < limit) | (limit == 0)
    probabilities = ranked.masked_fill(~kept, float("-inf")).softmax(-1)
    mass = torch.as_tensor(top_p, device=scaled.device, dtype=probabilities.dtype).unsqueeze(-1)
    kept = kept & ((probabilities.cumsum(-1) - probabilities < mass) | (mass >= 1))
    return torch.zeros_like(kept.expand_as(order)).scatter(-1, order, kept.expand_as(order))
