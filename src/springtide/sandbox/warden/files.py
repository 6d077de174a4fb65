"""Files of the working directory, for the trainer. A path is walked folder by folder, and no link is followed.

Nothing else runs in the box meanwhile, so what a step finds is still there at the next.
"""

from __future__ import annotations

import os
import stat

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def write_file(root: int, path: bytes, content: bytes) -> None:
    """Create or replace a file below `root`, a folder's descriptor. A link in its place is replaced, not followed.

    OSError when a folder of the path is something else, or the disk is full. Permissions of a replaced file are kept.
    """
    *folders, name = path.split(b"/")
    parent = _walk(root, folders, create=True)
    try:
        mode = _unlink(parent, name)
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=parent)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
    finally:
        os.close(parent)


def read_file(root: int, path: bytes, limit: int) -> bytes | None:
    """At most `limit` bytes of a regular file below `root`; None when there is none."""
    *folders, name = path.split(b"/")
    try:
        parent = _walk(root, folders, create=False)
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        finally:
            os.close(parent)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        chunks = []
        while limit and (chunk := os.read(descriptor, min(limit, 1 << 20))):
            chunks.append(chunk)
            limit -= len(chunk)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def _walk(root: int, folders: list[bytes], *, create: bool) -> int:
    """A descriptor, owned by the caller, of the last of `folders`."""
    current = os.dup(root)
    for name in folders:
        try:
            if create:
                _make_folder(current, name)
            inner = os.open(name, _FOLDER, dir_fd=current)
        finally:
            os.close(current)
        current = inner
    return current


def _make_folder(parent: int, name: bytes) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return


def _unlink(parent: int, name: bytes) -> int:
    """Remove what stands at `name`, if anything. The mode for the file in its place."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    os.unlink(name, dir_fd=parent)
    return stat.S_IMODE(found.st_mode) & 0o777 if stat.S_ISREG(found.st_mode) else 0o644
