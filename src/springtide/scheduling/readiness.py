"""What the policies go by: how turns and groups come and go, folded from events in O(1), read as a frozen snapshot."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from springtide.core.member import Member

TURN_WEIGHT = 1 / 4096
"""Of a new turn in the means: enough turns for all ages. Just before an update, those of old episodes prevail."""

GROUP_WEIGHT = 1 / 16

STEP_WEIGHT = 1 / 4


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot. Means are over recent turns, or groups; None until there was one.

    `environment`: seconds from the end of a turn until the next one is ready. `context`: tokens that a turn leaves in
    the context. `output`, `appended`: tokens that a turn samples, and that engines compute for it, those of lost KV
    left out: more than its text is longer where a history is not only appended to. `turns`, `trained`: turns
    of an episode, and tokens that the trainer has to process for it. `longest`: turns of a step's longest episode.
    `interval`: seconds between complete groups.
    `backlog`: complete groups that no step has begun to train on; `oldest`: seconds since the
    first of them was complete, 0 without one. `open`: episodes in flight; `ended`: those that were.
    """

    environment: float | None
    context: float | None
    output: float | None
    appended: float | None
    turns: float | None
    trained: float | None
    longest: float | None
    interval: float | None
    backlog: int
    oldest: float
    open: int
    ended: int


@dataclass
class Mean:
    """Exponentially weighted; the plain mean until that many values came in."""

    weight: float
    value: float | None = None
    count: int = 0

    def add(self, value: float) -> None:
        self.count += 1
        weight = max(self.weight, 1 / self.count)
        self.value = value if self.value is None else self.value + weight * (value - self.value)


class ReadinessFold:
    """The reducer. Every method is one event, in order of time (seconds). `prefilled`: tokens that engines have
    computed for the first time, of all turns."""

    def __init__(self, prefilled: Callable[[], int]) -> None:
        self._prefilled = prefilled
        self._environment = Mean(TURN_WEIGHT)
        self._context = Mean(TURN_WEIGHT)
        self._output = Mean(TURN_WEIGHT)
        self._turns = Mean(TURN_WEIGHT)
        self._trained = Mean(TURN_WEIGHT)
        self._longest = Mean(STEP_WEIGHT)
        self._interval = Mean(GROUP_WEIGHT)
        self._paused: dict[Member, float] = {}
        self._open = 0
        self._ended = 0
        self.turns = 0
        self._subscribers: list[Callable[[], None]] = []
        self._complete: dict[int, float] = {}
        self._last_complete: float | None = None

    def subscribe(self, told: Callable[[], None]) -> None:
        """`told` is called after each turn that ends."""
        self._subscribers.append(told)

    def opened(self) -> None:
        """An episode began."""
        self._open += 1

    def closed(self, member: Member) -> None:
        """An episode ended."""
        self._open -= 1
        self._ended += 1
        self._paused.pop(member, None)

    def played(self, turns: int, trained: int) -> None:
        """An episode is there to be trained on: so many turns, and tokens in all its training samples."""
        self._turns.add(turns)
        self._trained.add(trained)

    def stepped(self, longest: int) -> None:
        """A step was made of episodes of which the longest has so many turns."""
        self._longest.add(longest)

    def turn_ready(self, member: Member, now: float) -> None:
        """A turn waits for its tokens."""
        if member in self._paused:
            self._environment.add(now - self._paused[member])

    def turn_ended(self, member: Member, now: float, *, context: int, output: int) -> None:
        """A turn with `context` tokens presented has sampled `output` more."""
        self._paused[member] = now
        self._context.add(context + output)
        self._output.add(output)
        self.turns += 1
        for told in self._subscribers:
            told()

    def group_complete(self, group: int, now: float) -> None:
        if self._last_complete is not None:
            self._interval.add(now - self._last_complete)
        self._last_complete = now
        self._complete[group] = now

    def groups_taken(self, groups: tuple[int, ...]) -> None:
        """A step trains on them from now on."""
        for group in groups:
            self._complete.pop(group, None)

    def snapshot(self, now: float) -> Readiness:
        return Readiness(
            environment=self._environment.value,
            context=self._context.value,
            output=self._output.value,
            appended=self._prefilled() / self.turns if self.turns else None,
            turns=self._turns.value,
            trained=self._trained.value,
            longest=self._longest.value,
            interval=self._interval.value,
            backlog=len(self._complete),
            oldest=now - next(iter(self._complete.values())) if self._complete else 0.0,
            open=self._open,
            ended=self._ended,
        )
