"""Where untrusted code runs. `open_sandbox` makes the sandbox of a recipe; `probe` says what the host allows."""

from springtide.ports.sandbox import Sandbox
from springtide.sandbox.config import SandboxConfig
from springtide.sandbox.linux import LinuxSandbox
from springtide.sandbox.probe import LevelReport, probe

__all__ = ["LevelReport", "Sandbox", "SandboxConfig", "open_sandbox", "probe"]


def open_sandbox(config: SandboxConfig) -> Sandbox:
    """A sandbox that is not started yet: `await sandbox.start()` chooses the level and brings it up."""
    return LinuxSandbox(config)
