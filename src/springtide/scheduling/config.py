"""Settings of the scheduling decisions. Class defaults are the vetted setting."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from springtide.scheduling.priority import PriorityName
from springtide.scheduling.retention_names import REAL_FORMS, check


class StrictModel(BaseModel):
    """A recipe section: unknown keys are errors, values are not changed after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _retention(name: str) -> str:
    if name == "oracle":
        raise ValueError("only a simulation knows when environments return")
    check(name, REAL_FORMS)
    return name


class SchedulingConfig(StrictModel):
    """When groups are issued, consumed, retried and given up."""

    mode: Literal["sync", "async"] = Field(
        "sync", description="sync: step by step, bit for bit repeatable. async: rollout and training overlap."
    )
    groups_per_step: int = Field(8, ge=1, description="Groups per train step.")
    group_size: int = Field(8, ge=1, description="Episodes per group (same task).")
    steps: int = Field(100, ge=0, description="Train steps in the run.")
    staleness: int = Field(
        1, ge=0, description="K: most versions between a token's policy and the step that trains on it (async)."
    )
    window: int | None = Field(
        None,
        ge=0,
        description="Groups by which consumption may leave issue order, at most one batch; default: 0 in sync, one "
        "batch in async.",
    )
    batchwise: bool = Field(
        False, description="Issue no group before all earlier ones are complete; async, K = 1: one step off."
    )
    max_concurrent: int = Field(128, ge=1, description="Episodes in flight at once.")
    admission: Literal["fixed", "law"] = Field(
        "fixed", description="Episodes in flight: max_concurrent, or as many as keep the batch full and fit (async)."
    )
    retention: Annotated[str, AfterValidator(_retention)] = Field(
        "lru", description=f"Who keeps KV on the device while its environment works (async): {REAL_FORMS}."
    )
    costs: Literal["calibrated", "fitted"] = Field(
        "fitted",
        description="What law and retention take work to cost: as measured on the engine before the run, or from there "
        "on as it has taken lately.",
    )
    priority: PriorityName = Field(
        "oldest",
        description="Which ready turn goes first (async): of the oldest group, of the group with least before it "
        "(value), of the episode with most (longest), or value while the trainer starves, else longest (switch).",
    )
    aging: float = Field(
        300.0, gt=0, description="Seconds after which a ready turn goes before all others; oldest needs no such limit."
    )
    max_attempts: int = Field(3, ge=1, description="Attempts per slot when an episode turns out invalid.")
    min_valid: int = Field(2, ge=1, description="Valid members below which a complete group expires.")
    max_reissues: int = Field(2, ge=0, description="Times that an expired group's prompt is issued again.")
    group_deadline: float = Field(
        600.0, gt=0, description="Seconds from issue after which an incomplete group expires (async)."
    )
    filter_zero_variance: bool = Field(
        False, description="Dynamic sampling: set groups with equal rewards aside and issue others."
    )
    max_filtered_per_step: int = Field(
        64, ge=0, description="Groups that dynamic sampling may set aside per step before it keeps what it gets."
    )
