"""From a log of one run to its frame: canonical names and units, one value per step, and what is missing with its
reason.

Of several keys for one metric the first in the table that the run has counts. A key with `*` for a metric without one
is averaged over all that match. Values that the metric cannot take are dropped; where they are many the key means
something else in this version, and the metric is unavailable.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from springtide.diagnosis.alias import Alias, AliasTable
from springtide.diagnosis.frame import Frame, Series, Unavailable
from springtide.diagnosis.keys import KeyMap
from springtide.diagnosis.log import Log, Note, Row
from springtide.diagnosis.metric import CanonicalMetric, metrics
from springtide.diagnosis.setting import canonical_settings

TOLERANCE = 1e-3
"""By how much a value may be outside of its range: frameworks round, and average with rounding."""

FEW = 0.02
"""Share of values outside of the range up to which they are taken for damage to the file."""


STILL = 3
"""Equal values from which on a series does not move."""


class Column(NamedTuple):
    """One key of the log: its values by step, the last that was written for a step counts."""

    key: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]


def canonical(log: Log, table: AliasTable) -> Frame:
    """`log` holds one run, its rows have steps."""
    keys = KeyMap(table)
    columns = _columns(log.rows, {*table.step})
    chosen, unknown = _choose(columns, keys)
    series: dict[str, Series] = {}
    unavailable: dict[str, Unavailable] = {}
    notes: list[Note] = []
    window = _window(log, table)
    for (metric, alias_name), found in chosen.items():
        alias, kind = table.metrics[alias_name], _kind(metric)
        column = _scaled(_mean(found), alias, columns)
        checked, complaint = _still(metric, column) if alias.moves else (column, "")
        if checked is not None:
            checked, complaint = _checked(metric, column, kind)
        if not len(column.steps):
            continue
        if complaint:
            notes.append(Note(text=complaint))
        if checked is None:
            unavailable[metric] = Unavailable(metric, complaint, alias.turn_on)
        else:
            series[metric] = Series(metric, column.key, checked.steps, checked.values, alias.aggregate, window)
    for metric, missing in _missing(table, series).items():
        unavailable.setdefault(metric, missing)
    return Frame(
        source=log.source,
        framework=table.framework,
        series=series,
        unavailable=unavailable,
        settings=canonical_settings(log.settings, table),
        rows=len(log.rows),
        notes=(*log.notes, *notes),
        error=log.error,
        checkpoints=log.checkpoints,
        last_only=log.last_only,
        samples=log.samples,
        unknown=unknown,
    )


def _columns(rows: Sequence[Row], steps: set[str]) -> dict[str, Column]:
    """Rows with the same names, which are most, are turned into columns at once."""
    shapes: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(rows):
        shapes.setdefault(tuple(row.values), []).append(place)
    at = np.array([row.step or 0 for row in rows], np.int64)
    parts: dict[str, list[tuple[NDArray[np.int64], NDArray[np.float64]]]] = {}
    for names, places in shapes.items():
        values = np.array([list(rows[place].values.values()) for place in places], np.float64)
        where = np.array(places, np.int64)
        for column, name in enumerate(names):
            if name not in steps:
                parts.setdefault(name, []).append((where, values[:, column].copy()))
    return {name: _column(name, at, found) for name, found in parts.items()}


def _column(name: str, at: NDArray[np.int64], parts: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]]) -> Column:
    places = np.concatenate([where for where, _ in parts])
    values = np.concatenate([found for _, found in parts])
    steps = at[places]
    if len(steps) > 1 and not (np.diff(steps) > 0).all():
        order = np.lexsort((places, steps))
        steps, values = steps[order], values[order]
        last = np.append(np.diff(steps) > 0, True)
        steps, values = steps[last], values[last]
    return Column(name, steps, values)


def _choose(columns: Mapping[str, Column], keys: KeyMap) -> tuple[dict[tuple[str, str], list[Column]], tuple[str, ...]]:
    """Per metric the columns of its best key; and keys that nothing covers."""
    ranks: dict[tuple[str, str], int] = {}
    chosen: dict[tuple[str, str], list[Column]] = {}
    unknown = []
    for key, column in columns.items():
        found = keys.find(key)
        if not found and not keys.ignored(key):
            unknown.append(key)
        for metric, alias, rank in found:
            name = metric, alias
            if rank < ranks.get(name, len(columns) + 1_000):
                ranks[name], chosen[name] = rank, [column]
            elif rank == ranks[name]:
                chosen[name].append(column)
    return chosen, tuple(sorted(unknown))


def _mean(found: Sequence[Column]) -> Column:
    if len(found) == 1:
        return found[0]
    steps = np.unique(np.concatenate([each.steps for each in found]))
    total, count = np.zeros(len(steps)), np.zeros(len(steps))
    for each in found:
        place = np.searchsorted(steps, each.steps)
        total[place] += each.values
        count[place] += 1
    return Column(", ".join(each.key for each in found[:4]), steps, total / count)


def _scaled(column: Column, alias: Alias, columns: Mapping[str, Column]) -> Column:
    """In the canonical unit; without steps at which a key that the value is reckoned with is missing or 0."""
    if alias.less:
        kept, taken = _with_sum(column, alias.less, columns)
        column = kept._replace(values=kept.values - taken)
    if alias.over:
        kept, total = _with_sum(column, alias.over, columns)
        some = total != 0
        column = Column(column.key, kept.steps[some], kept.values[some] / total[some])
    values = column.steps - column.values if alias.lag else column.values
    with np.errstate(over="ignore", invalid="ignore"):
        return column._replace(values=values * alias.scales.get(column.key, alias.scale) + alias.offset)


def _with_sum(
    column: Column, names: Sequence[str], columns: Mapping[str, Column]
) -> tuple[Column, NDArray[np.float64]]:
    """The column at steps at which all the keys have a value, and the sum of them there."""
    others = [_column_of(name, columns) for name in names]
    steps = column.steps
    for other in others:
        steps = np.intersect1d(steps, other.steps)
    total = np.zeros(len(steps))
    for other in others:
        total += other.values[np.searchsorted(other.steps, steps)]
    return column._replace(steps=steps, values=column.values[np.searchsorted(column.steps, steps)]), total


def _column_of(name: str, columns: Mapping[str, Column]) -> Column:
    """The key itself, or behind a logger's prefix."""
    found = columns.get(name) or next((each for key, each in columns.items() if key.endswith(f"/{name}")), None)
    return found or Column(name, np.zeros(0, np.int64), np.zeros(0))


def _checked(metric: str, column: Column, kind: CanonicalMetric | None) -> tuple[Column | None, str]:
    """The column without values that the metric cannot take, None if there are too many; and a sentence if any."""
    low = -math.inf if kind is None or kind.low is None else kind.low
    high = math.inf if kind is None or kind.high is None else kind.high
    margin = TOLERANCE * max(1.0, *(abs(each) for each in (low, high) if math.isfinite(each)), 0.0)
    with np.errstate(invalid="ignore"):
        outside = np.isfinite(column.values) & ((column.values < low - margin) | (column.values > high + margin))
    if not outside.any():
        return column._replace(
            values=np.where(np.isfinite(column.values), column.values.clip(low, high), column.values)
        ), ""
    first = int(np.flatnonzero(outside)[0])
    example = f"{column.values[first]:.6g} at step {column.steps[first]}"
    span = f"from {low:g} to {high:g}" if math.isfinite(high) and math.isfinite(low) else f"at least {low:g}"
    span = f"at most {high:g}" if not math.isfinite(low) else span
    if outside.sum() > max(1.0, FEW * len(outside)) or len(outside) < 10:
        return None, f"{column.key} is not {metric} in this log: that is {span}, and it is {example}."
    kept = column._replace(steps=column.steps[~outside], values=column.values[~outside])
    return (
        kept,
        f"{outside.sum()} values of {column.key} are impossible and do not count ({example}; {metric} is {span}).",
    )


def _still(metric: str, column: Column) -> tuple[Column | None, str]:
    """None for a series that never moves."""
    if len(column.values) < STILL or np.ptp(column.values) > 0:
        return column, ""
    return None, f"{column.key} is not {metric} in this log: it never moves from {column.values[0]:.6g}."


def _kind(metric: str) -> CanonicalMetric | None:
    """The entry of a metric, or of the family that it belongs to."""
    known = metrics()
    return known.get(metric) or known.get(metric.rpartition("/")[0] + "/*")


def _window(log: Log, table: AliasTable) -> int:
    """Train steps that a value covers: as the container says, or what is between two rows where loggers average."""
    if log.window > 1 or not table.averages:
        return log.window
    steps = sorted({row.step for row in log.rows if row.step is not None and row.kind == "train"})
    return int(np.median(np.diff(steps))) if len(steps) > 1 else 1


def _missing(table: AliasTable, series: Mapping[str, Any]) -> dict[str, Unavailable]:
    found = {}
    families = {name.rpartition("/")[0] for name in series}
    for name, alias in table.metrics.items():
        if name in series or (name.endswith("/*") and name[:-2] in families):
            continue
        since = f"; {table.title} logs it since {alias.since}" if alias.since else ""
        found[name] = Unavailable(name, f"The log has no {alias.keys[0]}{since}.", alias.turn_on)
    for name, instead in table.never.items():
        if name not in series:
            found[name] = Unavailable(name, f"{table.title} does not log it.", instead)
    return found
