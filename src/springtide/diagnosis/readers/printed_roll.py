"""ROLL's console: `metrics_tag: {"step": 5, "metrics": {...}}`, JSON. Names may still end in how workers' values were
put together (`@sum`), which other loggers leave out."""

import re

from springtide.diagnosis.log import Row
from springtide.diagnosis.readers.grouping import RowBuilder
from springtide.diagnosis.readers.values import from_json, numbers, step_of

LINE = re.compile(rb"metrics_tag: (\{.*\})")
REDUCER = re.compile(r"@(?:sum|mean|max|min|last|p\d+)$")
WORDS = (b"metrics_tag: {",)


class Roll:
    def __init__(self) -> None:
        self._rows = RowBuilder()
        self.count = 0

    def take(self, line: bytes) -> None:
        if b"metrics_tag: {" not in line or (found := LINE.search(line)) is None:
            return
        try:
            read = from_json(found[1])
        except ValueError:
            return
        metrics = read.get("metrics")
        if isinstance(metrics, dict):
            values = {REDUCER.sub("", name): value for name, value in numbers(metrics).items()}
            self._rows.add(values, step_of(read.get("step")))
            self.count += bool(values)

    def rows(self) -> tuple[Row, ...]:
        return self._rows.rows()


def parser() -> Roll:
    return Roll()
