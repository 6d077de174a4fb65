"""What work takes on an engine, measured on the engine itself before a run: a few passes of known size.

Each size is timed three times and the fastest counts: whatever else the host does only ever adds.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np

from springtide.core.member import Member, Purpose
from springtide.core.sampling import SampleRequest, SamplingParams
from springtide.ports.engine import Engine
from springtide.scheduling.costs import ServiceCosts

REPEATS = 3
SHORT = 32
LONGEST = 1024
"""Tokens of the contexts that are tried: a short one, one at most so long, and half of that."""
BATCH = 16
STEPS = 16
VARIETY = 7
"""Token ids that are presented: every vocabulary has the first few."""
GROUPS = 10**12
"""Numbers of groups from here on are no run's."""


class Calibration:
    """`now` is a clock in seconds. The engine must be idle; it is left without sessions."""

    def __init__(self, engine: Engine, now: Callable[[], float] = time.perf_counter) -> None:
        self._engine = engine
        self._now = now
        self._used = GROUPS
        capabilities = engine.capabilities
        longest = min(LONGEST, capabilities.max_context - 2 * STEPS, capabilities.capacity_tokens // (2 * BATCH))
        self._long = max(SHORT + 2, longest)
        self._batch = min(BATCH, capabilities.max_batch)

    def costs(self) -> ServiceCosts:
        """Coefficients of rollout; those of training are 0."""
        lengths = (SHORT, (SHORT + self._long) // 2, self._long)
        prefill = _fit([(1, n, n * (n - 1) / 2) for n in lengths], [self._seconds(1, n, 1) for n in lengths])
        shapes = ((1, SHORT), (self._batch, SHORT), (self._batch, self._long))
        decode = _fit([(1, size, size * n) for size, n in shapes], [self._step(size, n) for size, n in shapes])
        reload = _fit([(1, n) for n in (SHORT, self._long)], [self._reload(n) for n in (SHORT, self._long)])
        plain = dict.fromkeys(ServiceCosts.model_fields, 0.0)
        found = {
            "prefill_base": prefill[0],
            "prefill_token": prefill[1],
            "prefill_attention": prefill[2],
            "decode_base": max(decode[0], 1e-9),
            "decode_sequence": decode[1],
            "decode_context": decode[2],
            "reload_base": reload[0],
            "reload_token": reload[1],
        }
        return ServiceCosts(**(plain | found))

    def _step(self, size: int, tokens: int) -> float:
        """Seconds of a decode step of `size` sequences with `tokens` of context."""
        return max(0.0, self._seconds(size, tokens, STEPS + 1) - self._seconds(size, tokens, 1)) / STEPS

    def _seconds(self, size: int, tokens: int, output: int) -> float:
        """Of `size` turns that present `tokens` tokens and sample `output`."""
        return min(self._play(size, tokens, output) for _ in range(REPEATS))

    def _play(self, size: int, tokens: int, output: int) -> float:
        members = self._members(size)
        started = self._now()
        self._run(members, tokens, output)
        seconds = self._now() - started
        self._release(members)
        return seconds

    def _reload(self, tokens: int) -> float:
        seconds = []
        for _ in range(REPEATS):
            members = self._members(1)
            self._run(members, tokens, 1)
            self._engine.demote(members[0], "warm")
            started = self._now()
            self._engine.prefetch(members[0])
            seconds.append(self._now() - started)
            self._release(members)
        return min(seconds)

    def _run(self, members: Sequence[Member], tokens: int, output: int) -> None:
        params = SamplingParams(max_tokens=output)
        texts = [tuple((member.group + place) % VARIETY for place in range(tokens)) for member in members]
        self._engine.submit(
            [
                SampleRequest(member=member, turn=0, tokens=text, params=params)
                for member, text in zip(members, texts, strict=True)
            ]
        )
        while self._engine.has_work():
            self._engine.step(max_decode_steps=output)

    def _members(self, size: int) -> list[Member]:
        """Each in a group of its own: nothing is shared."""
        first, self._used = self._used, self._used + size
        return [Member(Purpose.EVALUATE, first + number, 0) for number in range(size)]

    def _release(self, members: Sequence[Member]) -> None:
        for member in members:
            self._engine.release(member)


def _fit(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """As many coefficients as rows; a negative one, which is noise, is 0 and the others are fitted without it."""
    kept = list(range(len(rows[0])))
    while True:
        solved, *_ = np.linalg.lstsq(np.array([[row[k] for k in kept] for row in rows]), np.array(seconds), rcond=None)
        if (solved >= 0).all():
            break
        kept.pop(int(np.argmin(solved)))
    found = dict(zip(kept, solved, strict=True))
    return [float(found.get(column, 0.0)) for column in range(len(rows[0]))]
