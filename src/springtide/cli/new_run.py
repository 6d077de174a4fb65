"""A mistake that only shows while a new run prepares leaves nothing behind, as if it had been seen before."""

from collections.abc import Iterator
from contextlib import contextmanager

from springtide.core.errors import UnsafeSandboxError, UsageError
from springtide.telemetry.run_folder import RunFolder


@contextmanager
def undone_by_mistakes(folder: RunFolder) -> Iterator[None]:
    """Remove the new run when the user's mistake ends it before its first checkpoint."""
    try:
        yield
    except (UsageError, UnsafeSandboxError):
        if not folder.checkpoint_steps():
            folder.remove()
        raise
