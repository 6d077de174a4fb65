"""Settings of the rollout engines."""

from typing import Literal

from pydantic import Field

from springtide.scheduling.config import StrictModel


class TorchEngineConfig(StrictModel):
    """The embedded engine."""

    type: Literal["torch"] = "torch"
    capacity_tokens: int = Field(131072, ge=64, description="Tokens whose KV may be hot at once.")
    host_capacity_tokens: int = Field(262144, ge=0, description="Tokens whose KV may be kept in host memory.")
    max_batch: int = Field(128, ge=1, description="Sequences decoded together.")
    prefill_chunk: int = Field(8192, ge=16, description="Most tokens prefilled per forward pass.")
    decode_steps: int = Field(8, ge=1, description="Decode steps per visit to the engine thread.")
    kv_at_update: Literal["keep", "recompute"] = Field(
        "recompute", description="What live sessions do with old KV when weights change."
    )
    native_kernels: bool = Field(
        True, description="Compile the CPU's attention with the host's C compiler, if it has one."
    )
    threads: int = Field(0, ge=0, description="Torch threads of the engine lane; 0 decides by mode and cores.")


EngineConfig = TorchEngineConfig
