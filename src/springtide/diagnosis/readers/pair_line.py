"""Lines of loops of one's own: `step 12 | loss 0.31 | reward=0.5`, `Iter: 3, reward: 0.2`.

A line counts if it says a step and has at least two numbers with names, one of which speaks of training. It is asked
only of consoles in which nothing better was found.
"""

import re

from springtide.diagnosis.readers.console_values import LONGEST, SIGNAL
from springtide.diagnosis.readers.values import number

STEP = re.compile(r"(?i)\b(?:global_?)?step\b[ =:#\[]{1,4}(\d{1,12})\b")
OTHER = re.compile(r"(?i)\b(?:iteration|iter|update|episode|batch)\b[ =:#\[]{1,4}(\d{1,12})\b")
NUMBER = r"-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
PAIR = re.compile(rf"([A-Za-z][\w/@.%-]*)(?: ?[=:] ?| )({NUMBER})(%?)(?![\w.]|:\d|/\d)")
COUNTERS = frozenset(("step", "global_step", "iteration", "iter", "update", "episode", "batch", "epoch"))
FEWEST = 2


def may_be_pairs(line: bytes) -> bool:
    """Cheap, since every line is asked."""
    return b"oss" in line or b"eward" in line or b"core" in line or b"ccuracy" in line or b"ntropy" in line


def pair_line(line: bytes) -> tuple[int, dict[str, float]] | None:
    if len(line) > LONGEST:
        return None
    text = line.decode("utf-8", "replace")
    step = STEP.search(text) or OTHER.search(text)
    if step is None:
        return None
    values = {}
    for name, value, percent in PAIR.findall(text):
        read = number(value)
        if read is not None and name.lower() not in COUNTERS:
            values[name] = read / 100 if percent else read
    if len(values) < FEWEST or not any(SIGNAL.search(name) for name in values):
        return None
    return int(step[1]), values
