"""OpenRLHF's console: `Global step 5: {...}`, or, in older versions, short names behind its progress bars.

The bar of an episode shows the means of a step, that of `Train epoch` those of one micro-batch at a time, of which the
mean is taken. Where a step is printed as a whole, bars are not needed.
"""

import re

from springtide.diagnosis.log import Row
from springtide.diagnosis.readers.console_values import DICT, python_dict
from springtide.diagnosis.readers.grouping import RowBuilder
from springtide.diagnosis.readers.values import number

STEP = re.compile(rb"Global step (\d{1,12}): ")
EVALUATED = re.compile(rb"global_step (\d{1,12}), eval_metrics: ")
BAR = re.compile(
    rb"(Episode|Train epoch) \[(\d{1,9})/\d{1,9}\]:[^|]*\|[^|]*\| (\d{1,9})/(\d{1,9}) \[[^\]]*?, (\w+=.*)\]"
)
PAIR = re.compile(r"([\w/@.-]+)=([^,\]\s]+)")
NAMES = {
    "pg": "policy_loss",
    "act_loss": "policy_loss",
    "rm": "reward",
    "ret": "return",
    "glen": "response_length",
    "gen_len": "response_length",
    "tlen": "total_length",
    "tot_len": "total_length",
    "act_lr": "actor_lr",
    "cri": "critic_loss",
    "vals": "values",
    "cri_lr": "critic_lr",
    "ptx": "ptx_loss",
    "ent_loss": "entropy_loss",
    "grad_norm": "actor_grad_norm",
}
WORDS = (b"lobal", b"%|")


class OpenRLHF:
    def __init__(self) -> None:
        self._steps = RowBuilder()
        self._episodes = RowBuilder()
        self._epochs: list[list[dict[str, float]]] = []
        self._bar = (0, 0)
        self.count = 0

    def take(self, line: bytes) -> None:
        if b"lobal" in line and (found := STEP.search(line) or EVALUATED.search(line)):
            held_out = found.re is EVALUATED
            if text := DICT.search(line, found.end()):
                self._steps.add(python_dict(text[0]), int(found[1]), kind="eval" if held_out else "train")
                self.count += not held_out
        elif b"=" in line and b"%|" in line and (bar := BAR.search(line)):
            self._take_bar(bar)

    def _take_bar(self, bar: "re.Match[bytes]") -> None:
        pairs = PAIR.findall(bar[5].decode("utf-8", "replace"))
        values = {NAMES.get(name, name): read for name, text in pairs if (read := number(text)) is not None}
        position = (int(bar[2]), int(bar[3]))
        if not values:
            return
        if bar[1] == b"Episode":
            self._episodes.close()
            self._episodes.add(values, None)
            self.count += 1
            return
        if position <= self._bar or not self._epochs:
            self._epochs.append([])
        self._bar = position
        self._epochs[-1].append(values)

    def rows(self) -> tuple[Row, ...]:
        """Steps as printed, else those of episodes' bars, else those of train epochs; bars count from 1."""
        printed = self._steps.rows()
        if any(row.kind == "train" for row in printed):
            return printed
        rows = [row.values for row in _once(self._episodes.rows())] or [_mean(each) for each in self._epochs]
        return tuple(Row(values=values, step=index) for index, values in enumerate(rows, start=1))


def _once(rows: tuple[Row, ...]) -> list[Row]:
    """A bar is drawn again and again with the values of the last step."""
    return [
        row for before, row in zip((None, *rows), rows, strict=False) if before is None or before.values != row.values
    ]


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(row.get(name, 0.0) for row in rows) / len(rows) for name in rows[-1]}


def parser() -> OpenRLHF:
    return OpenRLHF()
