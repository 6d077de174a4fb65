"""Tokens for an episode. The runtime's dispatch is the only implementation that episodes see."""

from typing import Protocol

from springtide.core.sampling import Sampled, SampleRequest


class Sampler(Protocol):
    async def sample(self, request: SampleRequest) -> Sampled:
        """One turn of tokens for `request.member`. May take as long as admission and batching need."""
        ...
