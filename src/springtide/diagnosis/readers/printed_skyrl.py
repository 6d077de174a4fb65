"""SkyRL's console: `Step 5:` and below it a dict over many lines, whose numbers are strings of four decimals."""

import re

from springtide.diagnosis.log import Row
from springtide.diagnosis.readers.console_values import python_dict
from springtide.diagnosis.readers.grouping import RowBuilder, without_rounded_away
from springtide.diagnosis.readers.trouble import bare

STEP = re.compile(rb"\bStep (\d{1,12}):\s*$")
SMALL = re.compile(r"(?:lr|kl|logprobs_abs_diff_mean|prob_diff_mean)(?:_max)?$")
RATES = re.compile(r"(?:^|[/_])lr$")
"""Learning rates lie below what four decimals show, or lose most of their digits."""

LONGEST = 5000
"""Lines of one dict."""
WORDS = (b"Step ", b"': ")


class SkyRL:
    def __init__(self) -> None:
        self._rows = RowBuilder()
        self._step: int | None = None
        self._text: list[bytes] = []
        self.count = 0

    def take(self, line: bytes) -> None:
        if b"Step " in line and (found := STEP.search(bare(line))):
            self._step, self._text = int(found[1]), []
        elif self._step is not None:
            self._continue(bare(line).strip())

    def _continue(self, text: bytes) -> None:
        """Lines of other workers may stand in between."""
        if text.startswith((b"{'", b"'")):
            self._text.append(text)
            if text.endswith(b"}"):
                read = python_dict(b"".join(self._text))
                values = {key: value for key, value in read.items() if not RATES.search(key)}
                self._rows.add(values, self._step)
                self.count += bool(values)
                self._step = None
        elif len(self._text) > LONGEST:
            self._step = None

    def rows(self) -> tuple[Row, ...]:
        return without_rounded_away(self._rows.rows(), SMALL)


def parser() -> SkyRL:
    return SkyRL()
