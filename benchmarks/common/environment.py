"""What a process reads from its environment when it starts, for peers that run in a process of their own."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

KEPT_HEAP = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}
"""Freed memory stays with the process: otherwise the C library returns large temporaries to the system and faults them
in again at each operation."""

DEFAULT_WAITS = {"OMP_WAIT_POLICY": None, "GOMP_SPINCOUNT": "300000"}
"""How OpenMP's threads wait where nobody says how (libgomp's documentation), said, so that springtide leaves it so."""


@contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """The environment of processes that start meanwhile; None removes a variable."""
    before = {name: os.environ.get(name) for name in changes}
    _apply(changes)
    try:
        yield
    finally:
        _apply(before)


def _apply(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
