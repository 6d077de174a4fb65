"""Steps of rows that carry none, from the progress bars that were drawn around them.

A console has many bars: loading, tokenising, evaluation. That of training is the one with most positions. If it stands
elsewhere at every row, that is the row's step. A console that was buffered has its rows in bursts, far from their bars:
then the steps at which the bar was drawn twice in a row, because something was printed there, tell how far rows are
apart, and rows are counted.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median_low

TOTAL = re.compile(rb"/(\d{1,12}) \[")
POSITION = re.compile(rb"\d{1,12}$")
KEPT = 6
"""Bars of different lengths that are kept in mind at a time, the latest."""

TOTALS = 256
"""Bars of different lengths of which positions are counted."""

RISING = 0.7
"""Share of neighbouring rows between which the steps must rise, or the bars were no steps."""

Bars = tuple[tuple[int, int], ...]


class BarWatch:
    """`now`: the bars as they stand, (total, position), the latest last."""

    def __init__(self) -> None:
        self.now: Bars = ()
        self._moves: dict[int, int] = {}
        self._twice: dict[int, list[int]] = {}

    def take(self, line: bytes) -> None:
        for total in TOTAL.finditer(line):
            position = POSITION.search(line, max(total.start() - 12, 0), total.start())
            if position is not None:
                self._draw(int(position[0]), int(total[1]))

    def _draw(self, position: int, total: int) -> None:
        before = dict(self.now).get(total)
        if before == position and self._twice.get(total, [None])[-1] != position:
            self._twice.setdefault(total, []).append(position)
        elif before != position and (total in self._moves or len(self._moves) < TOTALS):
            self._moves[total] = self._moves.get(total, 0) + 1
        self.now = (*((each, at) for each, at in self.now if each != total), (total, position))[-KEPT:]

    def place(self) -> tuple[int, int] | None:
        """Where the bar that moved most stands, and how long it is."""
        if not self._moves:
            return None
        total = max(self._moves, key=self._moves.__getitem__)
        position = dict(self.now).get(total)
        return None if position is None else (position, total)

    def spacing(self, rows: int) -> int:
        """Steps from one row to the next; 1 if no bar tells."""
        if not self._moves or not rows:
            return 1
        total = max(self._moves, key=self._moves.__getitem__)
        twice = [0, *(position for position in self._twice.get(total, ()) if position)]
        gaps = [late - early for early, late in pairwise(twice) if late > early]
        if gaps:
            return median_low(gaps)
        return max(dict(self.now).get(total, 0) // rows, 1)


def steps_from_bars(seen: Sequence[Bars]) -> list[int | None]:
    """For each row the position of the bar of training; None for all if the bars do not tell."""
    positions: dict[int, set[int]] = {}
    for bars in seen:
        for total, position in bars:
            positions.setdefault(total, set()).add(position)
    most = max((len(found) for found in positions.values()), default=0)
    if (most < 2 and len(seen) > 1) or not positions:
        return [None] * len(seen)
    training = {total for total, found in positions.items() if len(found) > 1} or {max(positions)}
    steps = [next((at for total, at in reversed(bars) if total in training), None) for bars in seen]
    return steps if _rise(steps) else [None] * len(seen)


def _rise(steps: Sequence[int | None]) -> bool:
    known = [step for step in steps if step is not None]
    if 2 * len(known) < len(steps):
        return False
    pairs = list(pairwise(known))
    return sum(late > early for early, late in pairs) >= RISING * len(pairs)
