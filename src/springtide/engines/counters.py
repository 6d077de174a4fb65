"""Running totals of an engine."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Counters:
    """As in `EngineStats`."""

    prefilled: int = 0
    reprefilled: int = 0
    reused: int = 0
    refreshed: int = 0
    decoded: int = 0
    preemptions: int = 0
    visits: int = 0
    starts: int = 0
    joins: int = 0
    turns: int = 0
    attended: float = 0.0
    steps: int = 0
    read: int = 0

    def prefills(self, rows: Sequence[tuple[int, int]], *, decoding: int) -> None:
        """A pass computes `rows`, each a number of tokens after so many others, while `decoding` sequences decode."""
        self.joins += decoding > 0
        self.starts += decoding == 0
        self.turns += len(rows)
        self.attended += sum(new * (before + (new - 1) / 2) for new, before in rows)

    def decodes(self, lengths: Sequence[int], steps: int) -> None:
        """`steps` tokens are sampled for sequences that had such `lengths` before."""
        batch = len(lengths)
        self.steps += steps
        self.decoded += steps * batch
        self.read += steps * sum(lengths) + batch * steps * (steps - 1) // 2
