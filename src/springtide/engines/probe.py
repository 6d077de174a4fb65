"""How far log-probs over kept KV are from those that fresh KV would have given, measured on a few turns.

A probed turn samples as any other. When it has ended, its path is computed once more from nothing, in memory of its
own: no block, batch or random number of the engine is touched, so what is sampled does not depend on the probe.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from springtide.core.member import Member
from springtide.core.sampling import SamplingParams
from springtide.engines.blocks import Block, Blocks, block_length
from springtide.engines.group import Row
from springtide.engines.network import Network
from springtide.engines.storage import Storage
from springtide.policy.transform import transform_logits

SCORED = 128
"""Tokens scored per pass: their logits are [tokens, vocabulary]."""


@dataclass(frozen=True)
class Case:
    """A path whose tokens from `first` on were sampled under the present weights, with these log-probs."""

    tokens: Sequence[int]
    first: int
    logprobs: Sequence[float]
    params: SamplingParams


class Probe:
    """`share` of the turns is chosen, by a number that depends on seed, member and turn alone.

    Totals: `tokens` scored, the sums of |d| and of exp(d) - 1 - d over d = log p_fresh - log p_kept. Tokens that fresh
    KV would have excluded by truncation have no such number and are left out.
    """

    def __init__(self, network: Network, *, seed: int, share: float, chunk: int) -> None:
        self._network = network
        self._seed = seed
        self._share = share
        self._chunk = chunk
        self.due: list[Case] = []
        self.tokens = 0
        self.difference = 0.0
        self.k3 = 0.0

    def chooses(self, member: Member, turn: int) -> bool:
        text = f"{self._seed}/probe/{member.purpose.value}/{member.group}/{member.slot}/{member.attempt}/{turn}"
        number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
        return number < self._share * 2.0**64

    def run(self) -> None:
        """Score what is due."""
        cases, self.due = self.due, []
        for case in cases:
            kept = torch.tensor(case.logprobs, dtype=torch.float64)
            difference = self._fresh(case).double().cpu() - kept
            difference = difference[difference.isfinite()]
            self.tokens += len(difference)
            self.difference += float(difference.abs().sum())
            self.k3 += float((difference.expm1() - difference).sum())

    def _fresh(self, case: Case) -> torch.Tensor:
        """Log-probs of the tokens from `first` on, every token before computed under the present weights."""
        network, length = self._network, len(case.tokens) - 1
        blocks = Blocks(block_length(length))
        block = blocks.allocate(length)
        assert block is not None
        storage = Storage(network.layers, blocks.capacity, device=network.device, dtype=network.dtype)
        found = []
        start = 0
        while start < length:
            scored = start >= case.first - 1
            end = min(start + SCORED, length) if scored else min(start + self._chunk, case.first - 1)
            logits = self._pass(storage, block, case.tokens, start, end, last_only=not scored)
            if scored:
                targets = torch.tensor(case.tokens[start + 1 : end + 1], device=network.device)
                params = case.params
                logprobs = transform_logits(logits, params.temperature, params.top_k, params.top_p)
                found.append(logprobs.gather(-1, targets[:, None]).squeeze(-1))
            start = end
        return torch.cat(found)

    def _pass(
        self, storage: Storage, block: Block, tokens: Sequence[int], start: int, end: int, *, last_only: bool
    ) -> torch.Tensor:
        batch = self._network.batch(storage, [Row(block, start, end - start)])
        packed = torch.tensor(tokens[start:end], device=self._network.device)
        return self._network.logits(packed, batch, last_only=last_only)
