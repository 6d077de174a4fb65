"""AReaL's console: `Train step 5/100 done.` and below it a table of names and values, four pairs in a row."""

import re

from springtide.diagnosis.log import Row
from springtide.diagnosis.readers.grouping import RowBuilder
from springtide.diagnosis.readers.trouble import bare
from springtide.diagnosis.readers.values import number

STEP = re.compile(rb"Train step (\d{1,12})/\d+ done")
BORDER = "│"
NAME = re.compile(r"[A-Za-z][\w/.@:-]{0,199}")
WORDS = (b"Train step ", "│".encode())


class Areal:
    def __init__(self) -> None:
        self._rows = RowBuilder()
        self._step: int | None = None
        self.count = 0

    def take(self, line: bytes) -> None:
        """Steps are counted from 1 in what is printed, from 0 for other loggers."""
        if b"Train step " in line and (found := STEP.search(line)):
            self._rows.close()
            self._step = int(found[1]) - 1
            self.count += 1
        elif self._step is not None and BORDER.encode() in line:
            cells = [cell.strip() for cell in bare(line).decode("utf-8", "replace").split(BORDER)][1:-1]
            pairs = zip(cells[::2], cells[1::2], strict=False)
            values = {name: read for name, text in pairs if NAME.fullmatch(name) and (read := number(text)) is not None}
            self._rows.add(values, self._step)

    def rows(self) -> tuple[Row, ...]:
        return self._rows.rows()


def parser() -> Areal:
    return Areal()
