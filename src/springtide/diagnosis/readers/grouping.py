"""Rows from values that come one at a time, as TensorBoard, MLflow and most trackers write them.

Values of one step that follow each other are one row, until a key comes a second time: then the step was run again, or
logged twice, and that is another row. Nothing is sorted, so a run that was started anew is still to be seen.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from springtide.diagnosis.log import Row, RowKind


class RowBuilder:
    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._values: dict[str, float] = {}
        self._step: int | None = None
        self._time: float | None = None
        self._kind: RowKind = "train"

    def add(
        self,
        values: Mapping[str, float],
        step: int | None,
        time: float | None = None,
        kind: RowKind = "train",
    ) -> None:
        """The row's time is that of the first of its values."""
        if not values:
            return
        if step is None or step != self._step or kind != self._kind or not self._values.keys().isdisjoint(values):
            self.close()
        if not self._values:
            self._step, self._time, self._kind = step, time, kind
        self._values.update(values)

    def close(self) -> None:
        """What comes next is another row."""
        if self._values:
            row = Row(values=self._values, step=self._step, time=self._time, kind=self._kind)
            self._rows.append(row)
            self._values = {}

    def rows(self) -> tuple[Row, ...]:
        self.close()
        return tuple(self._rows)


def without_rounded_away(rows: Sequence[Row], small: re.Pattern[str]) -> tuple[Row, ...]:
    """Rows of a print with fixed decimals: a quantity that may be smaller than they show, and is 0 in every row, is not
    known."""
    alive = {key for row in rows for key, value in row.values.items() if value != 0}
    gone = {key for row in rows for key in row.values if key not in alive and small.search(key)}
    if not gone:
        return tuple(rows)
    kept = [(row, {key: value for key, value in row.values.items() if key not in gone}) for row in rows]
    return tuple(msgspec.structs.replace(row, values=values) for row, values in kept if values)
