"""How a modelled cluster is run: what policies and baselines set, and what `--set` changes."""

import tomllib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from springtide import settings
from springtide.core.errors import UsageError
from springtide.ports.engine import KvPolicy
from springtide.scheduling.config import StrictModel
from springtide.scheduling.priority import PriorityName
from springtide.scheduling.retention_names import FORMS, check


def _retention(text: str) -> str:
    check(text)
    return text


class Strategy(StrictModel):
    """Class defaults are bounded staleness with the KV dropped at every update."""

    mode: Literal["sync", "async"] = Field("async", description="Take turns, or overlap rollout and training.")
    staleness: int = Field(1, ge=0, description="K: most versions between a token's policy and its train step (async).")
    rollout_ranks: int = Field(
        0, ge=0, description="Ranks in rollout, the others train; 0: as the bound has it (async), all of them (sync)."
    )
    elasticity: Literal["static", "rates"] = Field(
        "static", description="static: the split stays. rates: ranks move to where the slower side is fastest."
    )
    concurrency_per_rank: int = Field(128, ge=1, description="Episodes in flight per rollout rank.")
    admission: Literal["fixed", "law"] = Field(
        "fixed", description="fixed: so many episodes per rank. law: as many as keep its batch full, and fit."
    )
    kv: KvPolicy = Field("recompute", description="What becomes of KV at new weights.")
    kv_gap: int = Field(1, ge=1, description="Most versions between KV that is kept and the weights.")
    evicts: Literal["warm", "cold"] = Field("cold", description="Where evicted KV goes: host memory, or nowhere.")
    batchwise: bool = Field(False, description="Issue no group before all earlier ones are complete.")
    surplus: float = Field(
        1.0, ge=1, description="Groups in flight per group of a step; the unfinished go on after the barrier (sync)."
    )
    versions: Literal["newest", "own"] = Field(
        "newest", description="own: an episode stays on the version it began with; each has ranks of its own (async)."
    )
    turnwise: bool = Field(False, description="The next turns of all episodes begin together: batched environments.")
    retention: Annotated[str, AfterValidator(_retention)] = Field(
        "lru", description=f"Who keeps KV on the device while its environment works: {FORMS}."
    )
    costs: Literal["given", "fitted"] = Field(
        "given", description="What policies take work to cost: the cluster's costs, or these fitted to what it took."
    )
    priority: PriorityName = Field(
        "oldest",
        description="Which ready turn goes first: of the oldest group, of the group with least before it (value), of "
        "the episode with most (longest), or value while the trainer starves, else longest (switch).",
    )
    aging: float = Field(
        300.0, gt=0, description="Seconds after which a ready turn goes before all others; oldest needs no such limit."
    )
    decode_steps: int = Field(16, ge=1, description="Decode steps per visit to a rank.")
    reference: bool = Field(True, description="Training needs the reference policy's log-probs.")
    pipelining: str = Field(
        "full",
        description="How reference and actor share the training ranks: full (whole batch), swap or swap-K (in turns of "
        "K micro-batches), split-M (M ranks only score), ahead or ahead-M (M ranks score first), adapter (the base "
        "model is the reference), adaptive.",
    )

    @property
    def bound(self) -> int:
        """The staleness that it can come to."""
        return self.staleness if self.mode == "async" or self.surplus > 1 else 0


OURS = Strategy(kv="keep", evicts="warm", admission="law", retention="break-even", pipelining="adaptive")
"""Springtide's policies, at a split that stays."""


def strategy_from(overrides: Sequence[str], base: Strategy | None = None) -> Strategy:
    """`base` (the default strategy) with NAME=VALUE applied. UsageError names what is wrong and what is allowed."""
    values: dict[str, Any] = {}
    for text in overrides:
        name, equals, raw = (part.strip() for part in text.partition("="))
        if not equals:
            raise UsageError(f"--set {text}: write it as setting=value, such as rollout_ranks=3.")
        setting = settings.find(Strategy, (name,))
        if setting is None:
            near = settings.nearest(Strategy, (name,))
            hint = f"did you mean {near}?" if near else f"there are: {', '.join(Strategy.model_fields)}."
            raise UsageError(f"--set {text}: there is no setting '{name}'; {hint}")
        try:
            values[name] = tomllib.loads(f"value = {raw}")["value"]
        except tomllib.TOMLDecodeError:
            values[name] = raw
        try:
            Strategy.model_validate({name: values[name]}, strict=True)
        except ValidationError:
            allowed = f"one of {FORMS}" if name == "retention" else setting.allowed
            raise UsageError(f"--set {text}: {name} takes {allowed}.") from None
    return Strategy.model_validate((base or Strategy()).model_dump() | values)


def ours(overrides: Sequence[str]) -> Strategy:
    """Springtide's policies with NAME=VALUE applied; ranks that take turns score the whole batch unless told not to."""
    found = strategy_from(overrides, OURS)
    if found.mode == "async" or found.rollout_ranks:
        return found
    return strategy_from(overrides, OURS.model_copy(update={"pipelining": "full"}))
