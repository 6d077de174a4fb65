"""slime's console: `step 12: {'train/loss': ...}` of the trainer and `rollout 3: {...}` of rollouts, each counted its
own way; see gather.py for how they come onto one axis."""

import re

from springtide.diagnosis.gather import one_axis
from springtide.diagnosis.log import Row
from springtide.diagnosis.readers.console_values import DICT, python_dict
from springtide.diagnosis.readers.grouping import RowBuilder

LINE = re.compile(rb"\b(step|rollout|perf|eval|passrate) (\d{1,12}): \{'")
WORDS = (b": {'",)


class Slime:
    def __init__(self) -> None:
        self._rows = RowBuilder()
        self.count = 0

    def take(self, line: bytes) -> None:
        if b": {'" not in line or (found := LINE.search(line)) is None:
            return
        held_out = found[1] == b"eval"
        if text := DICT.search(line, found.end() - 2):
            self._rows.add(python_dict(text[0]), int(found[2]), kind="eval" if held_out else "train")
            self.count += not held_out

    def rows(self) -> tuple[Row, ...]:
        return one_axis(self._rows.rows())


def parser() -> Slime:
    return Slime()
