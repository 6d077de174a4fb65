"""Successes among valid episodes, with the invalid ones beside: they are never part of a rate."""

from collections.abc import Iterable

import msgspec


class Count(msgspec.Struct, frozen=True):
    """`k` successes of `n` valid episodes; `invalid` episodes ended without a verdict and are in neither."""

    k: int
    n: int
    invalid: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.k <= self.n or self.invalid < 0:
            raise ValueError(f"{self.k} successes of {self.n} valid and {self.invalid} invalid episodes are no count.")

    @property
    def rate(self) -> float | None:
        """k / n; None where nothing valid was seen."""
        return self.k / self.n if self.n else None


def pooled(counts: Iterable[Count]) -> Count:
    """All episodes of several counts (seeds, suites) as one."""
    k = n = invalid = 0
    for count in counts:
        k, n, invalid = k + count.k, n + count.n, invalid + count.invalid
    return Count(k, n, invalid)
