"""The ranks in their present lives: what drives them, what weights they hold, and what is left of those that died."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from springtide.core.errors import SpringtideError
from springtide.core.version import PolicyVersion
from springtide.ports.engine import TOTALS, Engine, EngineStats, KvPolicy
from springtide.ports.executor import Executor
from springtide.runtime.rank import Rank
from springtide.runtime.together import together
from springtide.scheduling.membership import Membership

T = TypeVar("T")


class Crew:
    """`make(number, engine, epoch)` makes a rank that lives since `epoch`. `membership` says who lives. `asked` is
    called whenever a rank begins to load weights or to make room."""

    def __init__(
        self, engines: Sequence[Engine], make: Callable[[int, Engine, int], Rank], *, executor: Executor
    ) -> None:
        self._make = make
        self._executor = executor
        self.membership = Membership.of(len(engines), len(engines))
        self.ranks = [make(number, engine, 0) for number, engine in enumerate(engines)]
        self._drivers: dict[int, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._loads: dict[asyncio.Task[PolicyVersion], tuple[int, float]] = {}
        self._stops: dict[asyncio.Task[None], tuple[int, float]] = {}
        self.paused = False
        self._newest: tuple[PolicyVersion, Any, KvPolicy] | None = None
        self._past: dict[int, EngineStats] = {}
        self.asked: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Drive all ranks until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for number in range(len(self.ranks)):
                    self._drive(number)
                await asyncio.get_running_loop().create_future()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            self._group = None

    def _drive(self, number: int) -> None:
        assert self._group is not None
        self._drivers[number] = self._group.create_task(self.ranks[number].run())

    # -- lives -------------------------------------------------------------------------------------------------------

    def bury(self, number: int) -> None:
        """The rank is given up, with whatever it was at."""
        rank = self.ranks[number]
        self._executor.give_up(rank.lane)
        if number in self._drivers:
            self._drivers.pop(number).cancel()
        for load in [load for load, (loading, _) in self._loads.items() if loading == number]:
            load.cancel()
        for stop in [stop for stop, (stopping, _) in self._stops.items() if stopping == number]:
            stop.cancel()
        ended = self.stats_of(number)
        self._past[number] = EngineStats(**{name: getattr(ended, name) for name in TOTALS})
        rank.bury()

    def revive(self, number: int, engine: Engine) -> None:
        """The rank is there again, with an empty `engine`; it rolls out when it is employed."""
        self.ranks[number] = self._make(number, engine, self.membership.since[number])
        self.ranks[number].employ(False)
        if self.paused:
            self.ranks[number].hold()
        if self._group is not None:
            self._drive(number)

    async def pause(self, now: float) -> None:
        """No rank is at work from now on, and their devices are free. One that dies meanwhile is not waited for."""
        self.paused = True
        living = [number for number in range(len(self.ranks)) if self.membership.lives(number)]
        await together([self._stop(number, now) for number in living])

    def resume(self) -> None:
        self.paused = False
        for rank in self.ranks:
            rank.resume()
        self.asked()

    async def _stop(self, number: int, now: float) -> None:
        task = asyncio.get_running_loop().create_task(self.ranks[number].pause())
        self._stops[task] = (number, now)
        self.asked()
        try:
            await outlive(task)
        finally:
            del self._stops[task]

    # -- weights -----------------------------------------------------------------------------------------------------

    async def load(self, *, expected: PolicyVersion, weights: Any, kv: KvPolicy, now: float) -> PolicyVersion:
        """On every rank that lives; the proof of the first that holds others, if any."""
        self._newest = (expected, weights, kv)
        living = [number for number in range(len(self.ranks)) if self.membership.lives(number)]
        proofs = await together([self._load(number, now) for number in living])
        return next((proof for proof in proofs if proof is not None and proof != expected), expected)

    async def bring_up(self, number: int, now: float) -> None:
        """The newest version on one rank, if there is any. SpringtideError if it does not hold it then."""
        if self._newest is None:
            return
        expected, _, _ = self._newest
        proof = await self._load(number, now)
        if proof is not None and proof != expected:
            raise SpringtideError(
                f"Rank {number}, which came back, does not hold version {expected.number} (its digest: "
                f"{proof.digest[:12]}, the trainer's {expected.digest[:12]}); take the rank out and resume."
            )

    async def _load(self, number: int, now: float) -> PolicyVersion | None:
        """None from a rank that dies meanwhile: what it says is not heard."""
        assert self._newest is not None
        expected, weights, kv = self._newest
        loading = self.ranks[number].load(expected=expected, weights=weights, kv=kv)
        task = asyncio.get_running_loop().create_task(loading)
        self._loads[task] = (number, now)
        self.asked()
        try:
            return await outlive(task)
        finally:
            del self._loads[task]

    def changing(self) -> Iterator[tuple[int, float]]:
        """Ranks that load weights or make room, and since when."""
        yield from self._loads.values()
        yield from self._stops.values()

    @property
    def stats(self) -> EngineStats:
        """Of all ranks together, as of their last visits."""
        return summed([self.stats_of(number) for number in range(len(self.ranks))])

    def stats_of(self, number: int) -> EngineStats:
        """Of one rank, in all its lives."""
        lives = [self._past[number]] if number in self._past else []
        if not self.ranks[number].buried:
            lives.append(self.ranks[number].stats)
        return summed(lives)


def summed(parts: Sequence[EngineStats]) -> EngineStats:
    if len(parts) == 1:
        return parts[0]
    return EngineStats(**{name: sum(getattr(part, name) for part in parts) for name in EngineStats.__struct_fields__})


async def outlive(task: asyncio.Task[T]) -> T | None:
    """What `task` comes to, or None if somebody else cancels it."""
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        raise
    return None if task.cancelled() else task.result()
