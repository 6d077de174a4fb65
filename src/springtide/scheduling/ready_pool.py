"""Work that is ready, longest first, and work that is still to come."""

import math
from bisect import insort
from collections.abc import Sequence


class ReadyPool:
    """Units by index, of (ready, tokens) each. `ready`: those that have come and are not taken, longest first."""

    def __init__(self, units: Sequence[tuple[float, int]]) -> None:
        self._units = units
        self._order = sorted(range(len(units)), key=lambda unit: units[unit][0], reverse=True)
        self.ready: list[int] = []

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self.ready or self._order)

    @property
    def coming(self) -> int:
        """How many are not ready yet."""
        return len(self._order)

    @property
    def next_ready(self) -> float:
        return self._units[self._order[-1]][0] if self._order else math.inf

    def wait_until(self, time: float) -> float:
        """What is ready by then is in `ready`. Gives `time` back."""
        while self._order and self._units[self._order[-1]][0] <= time:
            insort(self.ready, self._order.pop(), key=lambda unit: (-self._units[unit][1], unit))
        return time

    def wait_for_one(self, time: float) -> float:
        """`time`, or when there is anything if that is later. Something must be left."""
        self.wait_until(time)
        return time if self.ready else self.wait_until(self.next_ready)
