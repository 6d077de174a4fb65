"""How much better than its group an episode did.

Invariant: only valid members speak. What an invalid member holds, how many there are and where they stand changes no
valid member's advantage, to the last bit (sums are exact, `math.fsum`).
"""

import math
from collections.abc import Sequence

STD_FLOOR = 1e-4
"""Added to a group's standard deviation, so that noise around equal rewards is not blown up to unit size."""


def group_advantages(rewards: Sequence[float | None], *, normalize_std: bool) -> list[float]:
    """One advantage per member of one group; None marks an invalid member, which gets 0.

    A_i = r_i - mean(r), over valid members (Dr.GRPO, arXiv 2503.20783), divided by the sample standard deviation
    (n - 1) with `normalize_std` (GRPO, arXiv 2402.03300). A group with fewer than two valid members, or with equal
    rewards, carries no signal: all its advantages are 0.
    """
    valid = [reward for reward in rewards if reward is not None]
    if len(valid) < 2 or min(valid) == max(valid):
        return [0.0] * len(rewards)
    mean = math.fsum(valid) / len(valid)
    scale = 1.0
    if normalize_std:
        variance = math.fsum((reward - mean) ** 2 for reward in valid) / (len(valid) - 1)
        scale = 1.0 / (math.sqrt(variance) + STD_FLOOR)
    return [0.0 if reward is None else (reward - mean) * scale for reward in rewards]
