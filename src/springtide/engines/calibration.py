"""What work takes on an engine, measured on the engine itself before a run: a few passes of known size.

Each size is timed three times and the fastest counts: whatever else the host does only ever adds.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

from springtide.core.member import Member, Purpose
from springtide.core.sampling import SampleRequest, SamplingParams
from springtide.ports.engine import Engine
from springtide.scheduling.costs import ServiceCosts
from springtide.scheduling.fit import fitted

REPEATS = 3
SHORT = 32
LONGEST = 1024
"""Tokens of the contexts that are tried: a short one, one at most so long, and half of that."""
BATCH = 16
STEPS = 16
JOINING = (1, 4)
"""Turns that join a batch at once."""
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
        self._middle = (SHORT + self._long) // 2
        self._batch = min(BATCH, capabilities.max_batch)
        self._decoding = max(1, self._batch - max(JOINING))
        self._joining = max(1, min(SHORT, capabilities.max_context - self._middle - STEPS - 1))

    def costs(self) -> ServiceCosts:
        """Coefficients of rollout; those of training are 0.

        The pass that prefills a turn samples its first token, which is counted as a decode step of its own:
        `prefill_base` and `join` are what such a pass takes beyond that.
        """
        shapes = ((1, SHORT), (self._batch, SHORT), (self._batch, self._long))
        visit = self._visit()
        decode = fitted([(1, size, size * n) for size, n in shapes], [self._step(*shape) for shape in shapes])
        reload = fitted([(1, n) for n in (SHORT, self._long)], [self._reload(n) for n in (SHORT, self._long)])
        plain = dict.fromkeys(ServiceCosts.model_fields, 0.0)
        found = {
            "decode_base": max(decode[0], 1e-9),
            "decode_sequence": decode[1],
            "decode_context": decode[2],
            "visit": visit,
            "reload_base": reload[0],
            "reload_token": reload[1],
        }
        return self._with_prefill(ServiceCosts(**(plain | found)))

    def _with_prefill(self, costs: ServiceCosts) -> ServiceCosts:
        """`costs` with what prefill takes, alone and when it joins a batch."""
        lengths = (SHORT, self._middle, self._long)
        alone = [self._seconds(1, n, 1) - costs.visit - costs.decode_step(1, n) for n in lengths]
        base, token, attention = fitted([(1, n, n * (n - 1) / 2) for n in lengths], alone)
        tokens = {"prefill_base": base, "prefill_token": token, "prefill_attention": attention}
        costs = costs.model_copy(update=tokens)
        beyond = [self._joined(turns) - self._known(turns, costs) for turns in JOINING]
        join, turn = fitted([(1, turns) for turns in JOINING], beyond)
        return costs.model_copy(update={"join": join, "turn": turn, "prefill_base": max(0.0, base - turn)})

    def work(self) -> float:
        """Seconds, this once, of a few turns of middling length: to see whether something else makes them longer."""
        return self.play(self._batch // 2 or 1, self._middle, 2 * STEPS)

    def _visit(self) -> float:
        """Seconds of a visit beyond those of its steps: single steps against as many in one visit."""
        size, tokens = self._batch, SHORT
        single = min(self.play(size, tokens, STEPS + 1, visit=1) for _ in range(REPEATS))
        return max(0.0, single - self._seconds(size, tokens, STEPS + 1)) / STEPS

    def _step(self, size: int, tokens: int) -> float:
        """Seconds of a decode step of `size` sequences with `tokens` of context."""
        return max(0.0, self._seconds(size, tokens, STEPS + 1) - self._seconds(size, tokens, 1)) / STEPS

    def _known(self, turns: int, costs: ServiceCosts) -> float:
        """Seconds by `costs` of the visit that `_joined` times."""
        context = self._decoding * (self._middle + 1) + turns * (self._middle + self._joining)
        step = costs.decode_step(self._decoding + turns, context)
        return costs.visit + 2 * step + turns * (costs.prefill(self._joining, self._middle) - costs.prefill_base)

    def _joined(self, turns: int) -> float:
        """Seconds of a visit of two decode steps that the next turns of so many sessions join."""
        return min(self._join(turns) for _ in range(REPEATS))

    def _join(self, turns: int) -> float:
        members = self._members(self._decoding + turns)
        decoding, joining = members[: self._decoding], members[self._decoding :]
        self._run(members, self._middle, 1, 1)
        self._submit(decoding, self._middle + 1, STEPS)
        self._engine.step(max_decode_steps=2)
        self._submit(joining, self._middle + self._joining, STEPS)
        seconds = self.timed(partial(self._engine.step, max_decode_steps=2))
        for member in members:
            self._engine.cancel(member)
        self._release(members)
        return seconds

    def _seconds(self, size: int, tokens: int, output: int) -> float:
        """Of `size` turns that present `tokens` tokens and sample `output`."""
        return min(self.play(size, tokens, output) for _ in range(REPEATS))

    def play(self, size: int, tokens: int, output: int, *, visit: int = 0) -> float:
        """Seconds, this once, of `size` turns that present `tokens` tokens and sample `output`, in visits of so many
        decode steps, or in one."""
        members = self._members(size)
        seconds = self.timed(lambda: self._run(members, tokens, output, visit or output))
        self._release(members)
        return seconds

    def _reload(self, tokens: int) -> float:
        seconds = []
        for _ in range(REPEATS):
            members = self._members(1)
            self._run(members, tokens, 1, 1)
            self._engine.demote(members[0], "warm")
            seconds.append(self.timed(partial(self._engine.prefetch, members[0])))
            self._release(members)
        return min(seconds)

    def _run(self, members: Sequence[Member], tokens: int, output: int, visit: int) -> None:
        self._submit(members, tokens, output)
        while self._engine.has_work():
            self._engine.step(max_decode_steps=visit)

    def _submit(self, members: Sequence[Member], tokens: int, output: int) -> None:
        params = SamplingParams(max_tokens=output)
        texts = [tuple((member.group + place) % VARIETY for place in range(tokens)) for member in members]
        self._engine.submit(
            [
                SampleRequest(member=member, turn=0, tokens=text, params=params)
                for member, text in zip(members, texts, strict=True)
            ]
        )

    def timed(self, work: Callable[[], object]) -> float:
        """Seconds that `work` takes by this clock."""
        started = self._now()
        work()
        return self._now() - started

    def _members(self, size: int) -> list[Member]:
        """Each in a group of its own: nothing is shared."""
        first, self._used = self._used, self._used + size
        return [Member(Purpose.EVALUATE, first + number, 0) for number in range(size)]

    def _release(self, members: Sequence[Member]) -> None:
        for member in members:
            self._engine.release(member)
