"""One token for every row at once: transform, inverse CDF, log-prob.

A row's number in (0, 1] depends on its stream and the token's position alone. On the CPU the CDF is summed in float64
in token order, so that equal logits give a row the same token in any batch; an accelerator may sum in another order,
and then a number on the edge between two tokens may fall either way.
"""

from collections.abc import Sequence

import torch

from springtide.core.sampling import SamplingParams
from springtide.policy.random import uniforms
from springtide.policy.transform import Setting, transform_logits


class Draws:
    """The settings of a batch of rows, for any number of steps."""

    def __init__(self, params: Sequence[SamplingParams], keys: Sequence[int], *, device: torch.device) -> None:
        temperatures = [each.temperature for each in params]
        self._temperature = _setting(temperatures, device)
        self._top_k = _setting([each.top_k for each in params], device)
        self._top_p = _setting([each.top_p for each in params], device)
        greedy = [temperature == 0 for temperature in temperatures]
        self._all_greedy = all(greedy)
        self._greedy = torch.tensor(greedy, device=device) if any(greedy) else None
        self._keys = torch.tensor(keys, device=device)
        width = max(len(each.stop_tokens) for each in params)
        stops = [list(each.stop_tokens) + [-1] * (width - len(each.stop_tokens)) for each in params]
        self._stops = torch.tensor(stops, device=device) if width else None

    def uniforms(self, positions: torch.Tensor, steps: int) -> torch.Tensor:
        """[steps, rows] numbers for the tokens at `positions` [rows] and the `steps` - 1 that follow each."""
        ahead = torch.arange(steps, device=positions.device)[:, None]
        return uniforms(self._keys, positions + ahead)

    def draw(self, logits: torch.Tensor, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens [rows] and their log-probs [rows] from `logits` [rows, V] and `uniform` [rows].

        The log-prob is that of the distribution after temperature and truncation; of a greedy token (temperature 0)
        that of the untruncated distribution at temperature 1.
        """
        logprobs = transform_logits(logits, self._temperature, self._top_k, self._top_p)
        if self._all_greedy:
            tokens = logprobs.argmax(-1)
        else:
            cumulative = logprobs.double().exp_().cumsum(-1)
            target = uniform[:, None] * cumulative[:, -1:]
            # The first token whose CDF reaches a number above zero has probability; the clamp lets NaN logits through.
            tokens = torch.searchsorted(cumulative, target).squeeze(-1).clamp_(max=logits.shape[-1] - 1)
            if self._greedy is not None:
                tokens = torch.where(self._greedy, logprobs.argmax(-1), tokens)
        return tokens, logprobs.gather(-1, tokens[:, None]).squeeze(-1)

    def stopped(self, tokens: torch.Tensor) -> bool:
        """Whether any row of `tokens` [rows] is one of its stop tokens."""
        return self._stops is not None and bool((tokens[:, None] == self._stops).any())


def _setting(values: Sequence[float], device: torch.device) -> Setting:
    """One number where all rows agree, else a tensor [rows]."""
    return values[0] if len(set(values)) == 1 else torch.tensor(values, device=device)
