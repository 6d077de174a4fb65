"""Where a report may be written: where nothing is yet, or over an earlier report of the same kind.

A report begins with a line by which it is known. Whatever else a file holds, the log that is read or a stranger's
notes, is never replaced, by whatever name or link the file is reached.
"""

from pathlib import Path

from springtide.core.errors import UsageError

HTML = "<!DOCTYPE html>\n<!-- springtide doctor -->\n"
MARKDOWN = "<!-- springtide doctor -->\n"
PROMETHEUS = "# HELP springtide_doctor_"


def require_free(file: Path, *, option: str, opening: str) -> None:
    """UsageError if `file` cannot be written to, or holds what does not begin with `opening`."""
    if file.is_dir():
        raise UsageError(f"{option} {file}: this is a folder; name the file that is to be written.")
    if not file.parent.is_dir():
        raise UsageError(f"{option} {file}: there is no folder {file.parent}; make it first.")
    if not file.exists():
        return
    if not file.is_file():
        raise UsageError(f"{option} {file}: this is no ordinary file; name another one.")
    with file.open("rb") as there:
        begins = there.read(len(opening))
    if begins and begins != opening.encode():
        raise UsageError(f"{option} {file}: this file is there and is no such report; name another one, or remove it.")
