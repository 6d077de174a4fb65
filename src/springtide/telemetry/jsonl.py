"""Metrics as JSON lines: one object per record, appended and flushed, so that a kill costs at most the last line.

A torn last line is ignored on reading and cut off before appending. A resumed run writes the steps that it repeats
once more: of several values of one name at one step, the last one counts.
"""

import os
from collections.abc import Iterable, Iterator
from math import nan
from pathlib import Path

import msgspec

from springtide.telemetry.record import MetricRecord


class _Line(msgspec.Struct):
    time: float
    step: int
    metrics: dict[str, float | None]


class JsonlSink:
    """Appends to `path`."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        cut_torn_line(path)
        self._file = path.open("ab")
        self._encoder = msgspec.json.Encoder()

    def write(self, record: MetricRecord) -> None:
        self._file.write(self._encoder.encode(record) + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> Iterator[MetricRecord]:
    """All records in order; none if the file does not exist. Lines that are not records are skipped."""
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(_Line)
    with path.open("rb") as file:
        for line in file:
            try:
                read = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            metrics = {name: nan if value is None else value for name, value in read.metrics.items()}
            yield MetricRecord(time=read.time, step=read.step, metrics=metrics)


def series(records: Iterable[MetricRecord], name: str) -> list[tuple[int, float]]:
    """(step, value) of one metric by step; the last value written for a step counts."""
    values = {record.step: record.metrics[name] for record in records if name in record.metrics}
    return sorted(values.items())


def cut_torn_line(path: Path) -> None:
    """Cut off what follows the last line feed, if anything does."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        position = end
        while position > 0:
            start = max(0, position - 4096)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            if found != -1:
                position = start + found + 1
                break
            position = start
        if position < end:
            file.truncate(position)
