"""A mistake that only shows while a new run prepares leaves nothing behind, as if it had been seen before.

A branch is a new run too: it begins with a copy of its parent's checkpoint.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from springtide.core.errors import UnsafeSandboxError, UsageError
from springtide.telemetry.run_folder import RunFolder


@contextmanager
def undone_by_mistakes(folder: RunFolder) -> Iterator[None]:
    """Remove the new run when the user's mistake ends it before it has anything of its own."""
    try:
        yield
    except (UsageError, UnsafeSandboxError):
        if not _has_begun(folder):
            folder.remove()
        raise


def _has_begun(folder: RunFolder) -> bool:
    parent = folder.info.parent
    if parent is None:
        return bool(folder.checkpoint_steps())
    measured = folder.metrics.exists() and folder.metrics.stat().st_size > 0
    return measured or folder.checkpoint_steps() != [parent.step]
