"""Settings of the sandbox."""

from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field, field_validator

from springtide.ports.sandbox import Limits
from springtide.scheduling.config import StrictModel

OWN_FOLDERS = ("/tmp", "/var/tmp", "/work", "/proc", "/dev")
"""Where a box has something of its own, which a folder of the host would cover."""


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
    read_only: tuple[str, ...] = Field(
        (), description="More folders of the host to show in every box, read-only, at the same place."
    )

    @field_validator("read_only")
    @classmethod
    def _show_plain_folders(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if not _can_be_shown(path):
                raise ValueError(
                    f'"{path}" is not allowed: it takes absolute paths without "..", of folders that neither hold nor '
                    f"lie in {', '.join(OWN_FOLDERS)}."
                )
        return paths

    def limits(self, *, wall_seconds: float) -> Limits:
        """The limits of one box, whose commands take `wall_seconds` at most."""
        return Limits(
            wall_seconds=wall_seconds,
            cpu_seconds=self.cpu_seconds,
            memory_bytes=self.memory_mb << 20,
            pids=self.pids,
            disk_bytes=self.disk_mb << 20,
            output_bytes=self.output_kb << 10,
        )


def _can_be_shown(path: str) -> bool:
    plain = PurePosixPath(path)
    if plain.root != "/" or str(plain) != path or ".." in plain.parts or "\0" in path:
        return False
    return not any(plain.is_relative_to(own) or PurePosixPath(own).is_relative_to(plain) for own in OWN_FOLDERS)
