"""A trace as a workload: its episodes again, in groups, as often as a run asks for them.

Seed 0 goes through the trace once as it was recorded. Every further pass, and every other seed, pairs anew: groups in
another order where they were recorded, episodes in other groups where they were not.
"""

import random
from functools import lru_cache
from itertools import pairwise

from pydantic import InstanceOf

from springtide.simulation.script import Script, Work
from springtide.simulation.traces.trace import Slot, Trace

GROUPS_PER_STEP = 64
"""At most, where the trace does not say."""

GROUP_SIZE = 8
"""Where the trace does not say."""


class Recorded(Work):
    """Implements Work on a trace."""

    trace: InstanceOf[Trace]

    @property
    def longest(self) -> int:
        return self.trace.longest

    @property
    def groups(self) -> int:
        """In one pass through the trace."""
        return len(self.trace.sizes) or -(-len(self.trace.slots) // self.group_size)

    def script(self, *, seed: int, task: int, slot: int, attempt: int) -> Script:
        passed, place = divmod(task, self.groups)
        if self.trace.sizes:
            return self._grouped(_order(seed, passed, self.groups)[place], slot, attempt)
        slots = self.trace.slots
        order = _order(seed, passed, len(slots))
        chosen = [order[(place * self.group_size + member) % len(slots)] for member in range(self.group_size)]
        together = [slots[number] for number in chosen]
        neighbours = all(after == before + 1 for before, after in pairwise(chosen))
        return self._script(together[slot], attempt, prefix=common(together) if neighbours else self.trace.shared)

    def _grouped(self, group: int, slot: int, attempt: int) -> Script:
        size, begin = self.trace.sizes[group], self.trace.begins[group]
        together = self.trace.slots[begin : begin + size]
        return self._script(together[slot % size], attempt, prefix=common(together))

    def _script(self, slot: Slot, attempt: int, *, prefix: int) -> Script:
        episode = slot[min(attempt, len(slot)) - 1]
        turns, factor = episode.turns, self.latency_factor
        if factor != 1.0:
            turns = tuple(turn._replace(latency=factor * turn.latency) for turn in turns)
        first = turns[0].context
        return Script(
            shared=min(self.trace.shared, prefix, first),
            prefix=min(prefix, first),
            reset=episode.reset,
            turns=turns,
            grade=episode.grade,
            reward=episode.reward,
            failed=episode.failed,
            trained=episode.trained,
        )


def common(slots: list[Slot] | tuple[Slot, ...]) -> int:
    """Leading tokens that all episodes of neighbouring slots begin with; all of the first context of a single one."""
    first, *others = (episode for slot in slots for episode in slot)
    return min((episode.common for episode in others), default=first.turns[0].context)


def recorded(
    trace: Trace, *, group_size: int | None = None, groups_per_step: int | None = None
) -> tuple[Recorded, list[str]]:
    """The trace as a workload, of its own sizes or of these, and what has been assumed, a sentence each."""
    size = group_size or (max(trace.sizes) if trace.sizes else GROUP_SIZE)
    groups = len(trace.sizes) or -(-len(trace.slots) // size)
    per_step = groups_per_step or trace.groups_per_step or min(GROUPS_PER_STEP, groups)
    told = list(trace.assumptions)
    if not trace.sizes:
        filled = f", filled up from the beginning ({_counted(len(trace.slots), 'episode')})"
        rest = filled if len(trace.slots) % size else ""
        told.append(f"The format has no groups: each {size} episodes in order are one{rest}.")
    elif smaller := sum(count < size for count in trace.sizes):
        told.append(f"{smaller} of {groups} groups have fewer than {size} episodes and play some of them twice.")
    told.append(
        f"{_counted(groups, 'group')} in one pass, {per_step} in a step: what goes beyond begins again, "
        f"{'groups in another order' if trace.sizes else 'episodes in other groups'}; so do seeds other than 0."
    )
    work = Recorded(
        name=trace.name,
        about=f"{trace.format}, {_counted(len(trace.slots), 'episode')}",
        trace=trace,
        group_size=size,
        groups_per_step=per_step,
    )
    return work, told


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@lru_cache(maxsize=8)
def _order(seed: int, passed: int, count: int) -> list[int]:
    order = list(range(count))
    if seed or passed:
        random.Random(f"trace, seed {seed}, pass {passed}").shuffle(order)
    return order
