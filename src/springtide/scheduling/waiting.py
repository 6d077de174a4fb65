"""Members that wait for a place among the running."""

from bisect import insort
from collections import deque
from dataclasses import dataclass, field

BACKOFF_LIMIT = 5.0
"""Seconds; the longest pause before an invalid episode's next attempt."""


@dataclass
class Waiting:
    """(group, slot, delay) of each. `ordered`: by group and slot; otherwise whoever came first goes first."""

    ordered: bool
    entries: deque[tuple[int, int, float]] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.entries)

    def add(self, group: int, slot: int, delay: float = 0.0) -> None:
        if self.ordered:
            insort(self.entries, (group, slot, delay))
        else:
            self.entries.append((group, slot, delay))

    def pop(self) -> tuple[int, int, float]:
        return self.entries.popleft()

    def drop(self, group: int) -> None:
        """The group has ended."""
        self.entries = deque(entry for entry in self.entries if entry[0] != group)

    def clear(self) -> None:
        self.entries.clear()


def backoff(attempt: int, first: float) -> float:
    """Seconds before `attempt`, the second or a later one: `first`, and then twice as long each time."""
    return min(first * 2.0 ** (attempt - 2), BACKOFF_LIMIT)
