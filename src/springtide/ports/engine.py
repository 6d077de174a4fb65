"""Tokens from weights. An engine is driven from one lane and never awaits; it declares what it can do."""

from typing import Any, Literal, Protocol

import msgspec

from springtide.core.member import Member
from springtide.core.sampling import Sampled, SampleRequest
from springtide.core.version import PolicyVersion

KvPolicy = Literal["keep", "recompute"]


class EngineCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler may ask for. `capacity_tokens` bounds the tokens whose KV is hot at once."""

    owns_residency: bool
    capacity_tokens: int
    max_batch: int
    max_context: int


TOTALS = ("prefilled", "reprefilled", "reused", "decoded", "preemptions", "demotions", "reloads")
"""Fields of EngineStats that only grow."""


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """Running totals since the engine was made, and gauges.

    `reused` counts re-presented tokens served from KV (own session or shared prompt), `reprefilled` re-presented
    tokens that had to be computed again, `prefilled` tokens computed for the first time. Hit rate is
    reused / (reused + reprefilled).
    """

    prefilled: int = 0
    reprefilled: int = 0
    reused: int = 0
    decoded: int = 0
    hot_tokens: int = 0
    warm_tokens: int = 0
    hot_sessions: int = 0
    running: int = 0
    preemptions: int = 0
    demotions: int = 0
    reloads: int = 0

    def since(self, before: "EngineStats") -> "EngineStats":
        """The totals without those of `before`; the gauges as they are."""
        return msgspec.structs.replace(self, **{name: getattr(self, name) - getattr(before, name) for name in TOTALS})


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that ended in a step."""

    member: Member
    turn: int
    sampled: Sampled


class Engine(Protocol):
    """Embedded or remote. Sessions are keyed by member; a session's KV survives pauses until it is released."""

    capabilities: EngineCapabilities

    def submit(self, requests: list[SampleRequest]) -> None:
        """Queue turns, in this order. ValueError if a request can never fit (longer than the context)."""
        ...

    def step(self, *, max_decode_steps: int) -> list[Finished]:
        """Do prefill and up to `max_decode_steps` decode steps. Empty when idle.

        Return early when a turn finishes and no other one waits for its place: a full engine need not come back for
        each of its turns.
        """
        ...

    def has_work(self) -> bool: ...

    def cancel(self, member: Member) -> None:
        """Drop a queued or running turn; the session stays."""
        ...

    def release(self, member: Member) -> None:
        """The episode is over: free everything the session holds."""
        ...

    def demote(self, member: Member, to: Literal["warm", "cold"]) -> None:
        """A request to move a paused session's KV; ignored by engines that do not own residency."""
        ...

    def prefetch(self, member: Member) -> None:
        """A hint that a paused session's next turn is about to come."""
        ...

    def load_weights(self, *, number: int, weights: Any, kv: KvPolicy) -> PolicyVersion:
        """Take new weights between steps, sessions alive. The digest is computed from the engine's own tensors.

        `keep` decodes on with the old KV; `recompute` drops all KV, which is prefilled again when needed.
        """
        ...

    def stats(self) -> EngineStats: ...
