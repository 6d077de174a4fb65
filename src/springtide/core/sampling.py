"""A request for one turn of tokens, and what came back."""

from enum import StrEnum

import msgspec

from springtide.core.member import Member


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn is sampled. Temperature 0 is greedy. `top_k` 0 and `top_p` 1.0 mean no truncation."""

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    stop_tokens: tuple[int, ...] = ()


class SampleStop(StrEnum):
    """Why sampling of a turn ended."""

    STOP_TOKEN = "stop_token"
    """A stop token was sampled; it is the last token of the turn."""
    LENGTH = "length"
    """`max_tokens` were sampled."""
    CONTEXT = "context"
    """The engine's context or capacity has no room for another token of this sequence."""


class SampleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """All tokens of the path so far: the engine finds out by itself how much of them it still holds.

    The random stream is a function of (run seed, member, position in the sequence) alone.
    """

    member: Member
    turn: int
    tokens: tuple[int, ...]
    params: SamplingParams

    @property
    def length(self) -> int:
        """Tokens that are presented."""
        return len(self.tokens)


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """One turn. `logprobs` and `versions` have one entry per token."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    stop: SampleStop

    @property
    def length(self) -> int:
        """Tokens that were sampled."""
        return len(self.tokens)
