"""Coefficients of costs from measured times."""

from collections.abc import Sequence

import numpy as np


def fitted(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """The coefficients of a row's numbers that come closest to `seconds` (least squares); a negative one, which is
    noise, is 0 and the others are fitted without it."""
    kept = list(range(len(rows[0])))
    while True:
        solved, *_ = np.linalg.lstsq(np.array([[row[k] for k in kept] for row in rows]), np.array(seconds), rcond=None)
        if (solved >= 0).all():
            break
        kept.pop(int(np.argmin(solved)))
    found = dict(zip(kept, solved, strict=True))
    return [float(found.get(column, 0.0)) for column in range(len(rows[0]))]
