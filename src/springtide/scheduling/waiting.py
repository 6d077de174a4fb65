"""Members that wait for a place among the running."""

from bisect import insort
from collections import deque
from dataclasses import dataclass, field


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
