"""Settings of the sandbox."""

from typing import Literal

from pydantic import Field

from springtide.scheduling.config import StrictModel


class SandboxConfig(StrictModel):
    level: Literal["auto", "namespaces", "user_namespaces", "bubblewrap"] = Field(
        "auto", description="auto: the strongest that the host allows."
    )
    allow_unsafe: Literal["", "landlock", "none"] = Field(
        "", description="Opt in, by name, to a level without full isolation."
    )
    memory_mb: int = Field(256, ge=16)
    pids: int = Field(32, ge=4)
    disk_mb: int = Field(64, ge=1)
    cpu_seconds: float = Field(10.0, gt=0)
    output_kb: int = Field(64, ge=1)
