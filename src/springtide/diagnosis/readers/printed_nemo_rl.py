"""NeMo-RL's console: a headline per step, results and timing below it as `• Name: value`. A small part of what its
other loggers get; the names are theirs."""

import re

from springtide.diagnosis.log import Row
from springtide.diagnosis.readers.grouping import RowBuilder, without_rounded_away
from springtide.diagnosis.readers.trouble import bare

STEP = re.compile(rb"=+ Step (\d{1,12})/\d+ =+")
ITEM = re.compile("• ([^:]{1,60}): *([-+]?[\\d.]+(?:e[-+]?\\d+)?|nan|inf)".encode())
BULLET = "•".encode()
NAMES = {
    b"Loss": "train/loss",
    b"Generation KL Error": "train/gen_kl_error",
    b"Avg Reward": "train/reward",
    b"Avg Total Reward": "train/reward",
    b"Avg Filtered Reward": "train/filtered_reward",
    b"Mean Generation Length": "train/mean_gen_tokens_per_sample",
    b"Buffer Size": "train/buffer_size",
    b"Avg Trajectory Age": "train/avg_trajectory_age",
    b"Total step time": "timing/train/total_step_time",
}
SMALL = re.compile("gen_kl_error")
HELD_OUT = {b"Accuracy": "validation/accuracy", b"Average response length": "validation/avg_length"}
WORDS = (b" Step ", "•".encode())


class NemoRL:
    def __init__(self) -> None:
        self._rows = RowBuilder()
        self._step = 0
        self.count = 0

    def take(self, line: bytes) -> None:
        if b" Step " in line and (found := STEP.search(line)):
            self._step = int(found[1])
        elif BULLET in line and (found := ITEM.search(bare(line))):
            try:
                value = float(found[2])
            except ValueError:
                return
            if name := NAMES.get(found[1].strip()):
                self.count += name == "train/loss"
                self._rows.add({name: value}, self._step)
            elif name := HELD_OUT.get(found[1].strip()):
                self._rows.add({name: value}, self._step, kind="eval")

    def rows(self) -> tuple[Row, ...]:
        """Training's items come before and after those of a validation in between."""
        return without_rounded_away(self._rows.rows(), SMALL)


def parser() -> NemoRL:
    return NemoRL()
