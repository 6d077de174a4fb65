"""prime-rl's console: `Step 12 | 3.1s | Loss 0.0123 | Entropy 0.4 | ...` of the trainer, the like of the orchestrator.

Labels have had a colon after them or not, by version. The two processes print into files of their own, which gather.py
puts together.
"""

import re

from springtide.diagnosis.log import Row
from springtide.diagnosis.readers.grouping import RowBuilder, without_rounded_away
from springtide.diagnosis.readers.trouble import bare

STEP = re.compile(rb"(?<!Micro )\bStep (\d{1,12}) \| (.*)")
CELL = re.compile(r"([A-Z][A-Za-z. -]*?):? +([-+]?[\d.]+(?:e[-+]?\d+)?|nan|inf)(%?)(?:/(\d+))?")
SECONDS = re.compile(r"(?:Time:? *)?(?:(\d+)h *)?(?:(\d+)m *)?(?:([\d.]+)s)?")
EVALUATED = re.compile(rb"Evaluated (\S+) in .*?Avg@(\d+)=([\d.]+)")
NAMES = {
    "Loss": "loss/mean",
    "Entropy": "entropy/all/mean",
    "Mismatch KL": "mismatch_kl/all/mean",
    "Grad. Norm": "optim/grad_norm",
    "LR": "optim/lr",
    "Throughput": "perf/throughput",
    "Max Vio": "max_vio/mean",
    "Routing Conf.": "routing_confidence/mean",
    "Reward": "reward/all/mean",
    "Val. Reward": "val/reward/all/mean",
    "Seq. Length": "seq_len/all/mean",
    "Async Level": "batch/async_level",
    "Max. Off-Policy Level": "off_policy/max",
    "Max Off-Policy": "off_policy/max",
    "Turns": "num_turns/all/mean",
    "Error": "error/all/mean",
    "Cancelled": "cancelled/all/mean",
    "Truncation": "is_truncated/all/mean",
    "Trainable": "trainable/mean",
}
"""The names under which the same goes to other loggers."""

SMALL = re.compile("mismatch_kl")
WORDS = (b"Step ", b"Evaluated ")


class PrimeRL:
    def __init__(self) -> None:
        self._rows = RowBuilder()
        self.count = 0

    def take(self, line: bytes) -> None:
        if b"Evaluated " in line and (found := EVALUATED.search(line)):
            name = found[1].decode("utf-8", "replace")
            self._rows.add({f"eval/{name}/avg@{int(found[2])}": _number(found[3])}, None, kind="eval")
        elif b"Step " in line and b" | " in line and (found := STEP.search(bare(line))):
            self._rows.close()
            values = cells(found[2].decode("utf-8", "replace"))
            self._rows.add(values, int(found[1]))
            self.count += bool(values)

    def rows(self) -> tuple[Row, ...]:
        """An evaluation belongs to the step that was printed before it."""
        rows, step = [], None
        for row in self._rows.rows():
            step = step if row.step is None else row.step
            rows.append(Row(values=row.values, step=step, kind=row.kind))
        return without_rounded_away(rows, SMALL)


def cells(text: str) -> dict[str, float]:
    values = {}
    for cell in text.split(" | "):
        cell = cell.strip()
        if (found := CELL.match(cell)) and (name := NAMES.get(found[1].strip())):
            value = _number(found[2].encode())
            share = found[4] is not None and int(found[4]) > 0
            values[name] = value / 100 if found[3] else value / int(found[4]) if share else value
        elif (taken := SECONDS.fullmatch(cell)) and any(taken.groups()):
            hours, minutes, seconds = (_number(part.encode()) if part else 0.0 for part in taken.groups())
            values["time/step"] = 3600 * hours + 60 * minutes + seconds
    return values


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def parser() -> PrimeRL:
    return PrimeRL()
