"""Thins a dump of any size to what fits in memory: whole groups, of steps that are spread over the run.

Steps are taken as they come; whenever there are twice too many, every other one is dropped and from then on only every
other one is taken. So the kept steps are evenly spread however long the run turns out to be, and the newest step is
always among them.
"""

from collections.abc import Iterator

from springtide.diagnosis.completions.sample import Sample

STEPS = 24
"""Kept steps, at most twice as many."""

GROUPS = 24
"""Kept groups of a step."""

MEMBERS = 16
"""Kept completions of a group."""

Step = dict[str, list[Sample]]


class Sieve:
    def __init__(self, *, steps: int = STEPS, groups: int = GROUPS, members: int = MEMBERS) -> None:
        self._most_steps, self._most_groups, self._most_members = steps, groups, members
        self._seen: dict[int, int] = {}
        self._stride = 1
        self._kept: dict[int, Step] = {}
        self._newest: tuple[int, Step] | None = None
        self.rows = 0

    def add(self, sample: Sample) -> None:
        self.rows += 1
        place = self._step(sample.step)
        if place is None:
            return
        if sample.group not in place:
            if len(place) >= self._most_groups:
                return
            place[sample.group] = []
        if len(place[sample.group]) < self._most_members:
            place[sample.group].append(sample)

    def samples(self) -> Iterator[Sample]:
        """What was kept, by step."""
        kept = dict(self._kept)
        if self._newest is not None:
            kept.setdefault(*self._newest)
        for step in sorted(kept):
            for members in kept[step].values():
                yield from members

    def _step(self, step: int) -> Step | None:
        if step in self._kept:
            return self._kept[step]
        order = self._seen.setdefault(step, len(self._seen))
        if order % self._stride == 0:
            self._kept[step] = {}
            self._thin()
            if step in self._kept:
                return self._kept[step]
        if self._newest is None or self._newest[0] < step:
            self._newest = (step, {})
        return self._newest[1] if self._newest[0] == step else None

    def _thin(self) -> None:
        if len(self._kept) <= 2 * self._most_steps:
            return
        self._stride *= 2
        self._kept = {step: found for step, found in self._kept.items() if self._seen[step] % self._stride == 0}
