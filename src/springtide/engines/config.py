"""Settings of the rollout engines."""

from typing import Literal

from pydantic import Field

from springtide.ports.engine import KvPolicy
from springtide.scheduling.config import StrictModel
from springtide.scheduling.refresh import CHUNK


class TorchEngineConfig(StrictModel):
    """The embedded engine."""

    type: Literal["torch"] = "torch"
    capacity_tokens: int = Field(131072, ge=64, description="Tokens whose KV may be hot at once.")
    host_capacity_tokens: int = Field(262144, ge=0, description="Tokens whose KV may be kept in host memory.")
    max_batch: int = Field(128, ge=1, description="Sequences decoded together.")
    prefill_chunk: int = Field(8192, ge=16, description="Most tokens prefilled per forward pass.")
    decode_steps: int = Field(8, ge=1, description="Decode steps per visit to the engine thread.")
    kv_at_update: KvPolicy = Field(
        "recompute",
        description="KV of live sessions when weights change: recompute (dropped), keep (used on), refresh (used on, "
        "and computed again while its episode pauses and the engine is idle).",
    )
    kv_gap: int = Field(
        1, ge=1, description="Most versions between KV that is kept and the weights; older KV is computed again."
    )
    probe_share: float = Field(
        0.02, ge=0, le=1, description="Turns over kept KV that are scored with fresh KV as well; 0: none."
    )
    divergence_budget: float = Field(
        1e-3,
        gt=0,
        description="Mean k3 KL per token between kept and fresh KV, by the probe, above which none is kept.",
    )
    refresh_chunk: int = Field(
        CHUNK, ge=1, description="Tokens refreshed between two looks for turns that have become ready."
    )
    native_kernels: bool = Field(
        True, description="Compile the CPU's attention with the host's C compiler, if it has one."
    )
    threads: int = Field(0, ge=0, description="Torch threads of the engine lane; 0 decides by mode and cores.")


EngineConfig = TorchEngineConfig
