"""Tokens from weights. An engine is driven from one lane and never awaits; it declares what it can do."""

from typing import Any, Literal, Protocol

import msgspec

from springtide.core.member import Member
from springtide.core.sampling import Sampled, SampleRequest
from springtide.core.version import PolicyVersion

KvPolicy = Literal["keep", "refresh", "recompute"]
"""What becomes of live sessions' KV at new weights: used on while it is not too old; the same, and computed again under
the new weights while its session pauses and the engine is idle; or dropped."""


class EngineCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler may ask for. `capacity_tokens` bounds the tokens whose KV is hot at once."""

    owns_residency: bool
    capacity_tokens: int
    max_batch: int
    max_context: int


TOTALS = (
    "prefilled",
    "reprefilled",
    "reused",
    "refreshed",
    "decoded",
    "preemptions",
    "demotions",
    "reloads",
    "probed",
    "probe_difference",
    "probe_k3",
    "visits",
    "starts",
    "joins",
    "turns",
    "attended",
    "steps",
    "read",
    "reloaded",
    "reload_seconds",
    "reload_wait",
)
"""Fields of EngineStats that only grow."""


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """Running totals since the engine was made, and gauges.

    `reused` counts re-presented tokens served from KV (own session or shared prompt), `reprefilled` re-presented
    tokens that had to be computed again, `prefilled` tokens computed for the first time. Hit rate is
    reused / (reused + reprefilled). `refreshed` tokens of paused sessions were computed again under new weights.

    `probed` tokens were sampled over KV of earlier versions and scored again with fresh KV: `probe_difference` is the
    sum of |log p_kept - log p_fresh|, `probe_k3` that of the k3 estimate of the KL divergence, in nats. `probes_due`
    turns wait for that.

    What work consisted of, in the terms of `scheduling/costs.py`: `visits` that did anything; passes with prefill,
    of which `joins` also decoded and `starts` did not; `turns` of which anything was prefilled in them; `attended`, the
    tokens before each prefilled one, summed; `steps` of decoding, and the tokens of KV that their sequences `read`.
    `reloaded` tokens came from host memory: their copies took `reload_seconds`, and for `reload_wait` of these nothing
    else could be done.
    """

    prefilled: int = 0
    reprefilled: int = 0
    reused: int = 0
    refreshed: int = 0
    decoded: int = 0
    hot_tokens: int = 0
    warm_tokens: int = 0
    hot_sessions: int = 0
    running: int = 0
    preemptions: int = 0
    demotions: int = 0
    reloads: int = 0
    probed: int = 0
    probe_difference: float = 0.0
    probe_k3: float = 0.0
    probes_due: int = 0
    visits: int = 0
    starts: int = 0
    joins: int = 0
    turns: int = 0
    attended: float = 0.0
    steps: int = 0
    read: int = 0
    reloaded: int = 0
    reload_seconds: float = 0.0
    reload_wait: float = 0.0

    def since(self, before: "EngineStats") -> "EngineStats":
        """The totals without those of `before`; the gauges as they are."""
        return msgspec.structs.replace(self, **{name: getattr(self, name) - getattr(before, name) for name in TOTALS})


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that ended in a step."""

    member: Member
    turn: int
    sampled: Sampled


class StaleKv(msgspec.Struct, frozen=True, kw_only=True):
    """A paused session on the device whose `tokens` tokens of KV are not all of the present version: the first `fresh`
    are, `oldest` is the version of the oldest.
    """

    member: Member
    tokens: int
    fresh: int
    oldest: int


class HandedOver(msgspec.Struct, frozen=True, kw_only=True):
    """A session between two engines of one model: `tokens` tokens of its KV, in host memory. `session` is the engines'
    own."""

    tokens: int
    session: Any


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

    def suspend(self) -> None:
        """The device is wanted for something else, between two steps: all KV leaves it for host memory, as far as that
        has room. Running turns wait, and go on at the next step."""
        ...

    def hand_over(self, member: Member) -> HandedOver | None:
        """A session without a turn leaves this engine. None if it is not known, or leaves nothing behind."""
        ...

    def take_over(self, member: Member, handed: HandedOver) -> int:
        """The session is here from now on, and warm: so many tokens of its KV. 0 where host memory has no room for it,
        or where it is older than an update at which this engine dropped all KV.
        """
        ...

    def load_weights(self, *, number: int, weights: Any, kv: KvPolicy) -> PolicyVersion:
        """Take new weights between steps, sessions alive. The digest is computed from the engine's own tensors.

        `recompute` drops all KV, which is prefilled again when needed. `keep` and `refresh` decode on with the old KV,
        except where it is more versions old than the engine's limit allows.
        """
        ...

    def trust_kv(self, trusted: bool) -> None:
        """Whether turns may go on over KV of earlier versions. If not, only those that are probed do from now on."""
        ...

    def stale(self) -> list[StaleKv]:
        """Sessions that `refresh` has something to do for."""
        ...

    def refresh(self, member: Member, tokens: int) -> int:
        """Compute up to `tokens` tokens of a paused session's KV again, after copying what its group has.

        Tokens that are of the present version and were not before; 0 if there was nothing to do. The session is usable
        at any time: what is not done yet is as it was.
        """
        ...

    def probe(self) -> None:
        """Score the turns that are due for the probe with fresh KV. Nothing that is sampled depends on it."""
        ...

    def stats(self) -> EngineStats: ...
