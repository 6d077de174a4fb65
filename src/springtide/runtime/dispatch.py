"""The only Sampler: it collects turns from episodes and hands each to the rank where its episode lives.

In lockstep (sync mode, one rank) a batch is formed when every open episode waits for tokens, in member order, and is
run to its end: batch composition depends on nothing but the tokens. Otherwise turns join an engine whenever it comes
by, and finished ones leave at once: environment latency never blocks generation.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from springtide.core.member import Member
from springtide.core.sampling import Sampled, SampleRequest
from springtide.core.version import PolicyVersion
from springtide.ports.clock import Clock
from springtide.ports.engine import Engine, EngineStats, Finished, KvPolicy
from springtide.ports.executor import Executor
from springtide.runtime.rank import Rank, Waits
from springtide.scheduling.divergence import DivergenceBudget
from springtide.scheduling.placement import GroupAffinity
from springtide.scheduling.priority import Oldest, Priority
from springtide.scheduling.readiness import ReadinessFold
from springtide.scheduling.refresh import Refresh
from springtide.scheduling.residency import Residency
from springtide.telemetry.ledger import Ledger
from springtide.telemetry.status import Wait

T = TypeVar("T")

LANE = "engine"
"""The lane of the one rank; of several, the first part of their lanes' names."""


def lanes(ranks: int) -> list[str]:
    """The names of the lanes of so many ranks."""
    return [LANE] if ranks == 1 else [f"{LANE}-{number}" for number in range(ranks)]


def _no_residency(engine: Engine) -> None:
    """The engine decides, when it needs room."""


class Dispatch:
    """Implements the Sampler port over one engine or several. `run` drives them until cancelled.

    `residency` makes the object that decides which KV stays on the device, one per engine. `refresh` and `budget` are
    for all of them: what idle engines compute again, and whether KV of earlier versions may be sampled over. `priority`
    says which ready turns go first.
    """

    def __init__(
        self,
        *,
        engines: Sequence[Engine],
        executor: Executor,
        clock: Clock,
        ledger: Ledger,
        lockstep: bool,
        decode_steps: int = 8,
        residency: Callable[[Engine], Residency | None] = _no_residency,
        refresh: Refresh | None = None,
        budget: DivergenceBudget | None = None,
        priority: Priority | None = None,
    ) -> None:
        assert len(engines) == 1 or not lockstep, "a lockstep batch is formed on one rank"
        self._clock = clock
        self._waits = Waits(clock.now)
        self._priority = priority or Oldest()
        self._ranks = [
            Rank(
                lane=lane,
                engine=engine,
                executor=executor,
                ledger=ledger,
                waits=self._waits,
                deliver=self._deliver,
                lockstep=lockstep,
                decode_steps=decode_steps,
                priority=self._priority,
                residency=residency(engine),
                refresh=refresh,
                budget=budget,
            )
            for lane, engine in zip(lanes(len(engines)), engines, strict=True)
        ]
        self.budget = budget
        self.readiness = ReadinessFold(self._prefilled)
        self._placement = GroupAffinity(len(self._ranks))
        self._homes: dict[Member, int] = {}
        self._futures: dict[Member, tuple[asyncio.Future[Sampled], float]] = {}
        self._asking: dict[int, dict[Member, Rank]] = {}

    # -- episodes ----------------------------------------------------------------------------------------------------

    def open(self, member: Member) -> None:
        """An episode begins; in lockstep no batch forms without it until it is closed."""
        self.readiness.opened()
        self._settle(member)

    def close(self, member: Member) -> None:
        """The episode is over and its successors are open."""
        if member in self._homes:
            self.readiness.closed(member)
            self._unsettle(member)

    async def sample(self, request: SampleRequest) -> Sampled:
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        now = self._clock.now()
        self._futures[request.member] = (future, now)
        self.readiness.turn_ready(request.member, now)
        rank = self._home(request.member)
        self._asking.setdefault(request.member.group, {})[request.member] = rank
        rank.enqueue(request)
        try:
            sampled = await future
            self.readiness.turn_ended(request.member, self._clock.now(), context=request.length, output=sampled.length)
            self._priority.sampled(request.member, sampled.length)
            return sampled
        except asyncio.CancelledError:
            self._futures.pop(request.member, None)
            rank.cancel(request.member)
            raise
        finally:
            self._answered(request.member)

    def _answered(self, member: Member) -> None:
        asking = self._asking[member.group]
        del asking[member]
        if not asking:
            del self._asking[member.group]

    def reorder(self, groups: Iterable[int] | None = None) -> None:
        """What the priority of these groups' turns goes by has changed; by default, that of all."""
        for group in list(self._asking) if groups is None else groups:
            for member, rank in self._asking.get(group, {}).items():
                rank.reorder(member)

    async def load(self, *, expected: PolicyVersion, weights: Any, kv: KvPolicy) -> PolicyVersion:
        """New weights on every rank, between two of its visits; the proof of the first that holds others, if any."""
        proofs = await _together([rank.load(expected=expected, weights=weights, kv=kv) for rank in self._ranks])
        return next((proof for proof in proofs if proof != expected), expected)

    @property
    def rollout_ranks(self) -> int:
        return self._placement.active

    def roll_out_on(self, ranks: int) -> None:
        """On the first `ranks` from now on. What runs on the others is ended there; the next turns go elsewhere."""
        self._placement.restrict(ranks)
        for number, rank in enumerate(self._ranks):
            rank.employ(number < ranks)

    def _home(self, member: Member) -> Rank:
        """Where the member's next turn goes: elsewhere than the last one if that rank rolls out no longer."""
        if self._homes[member] >= self._placement.active:
            self._unsettle(member)
            self._settle(member)
        return self._ranks[self._homes[member]]

    def _settle(self, member: Member) -> None:
        number = self._homes[member] = self._placement.place(member)
        self._ranks[number].open(member)

    def _unsettle(self, member: Member) -> None:
        self._placement.forget(member)
        self._ranks[self._homes.pop(member)].close(member)

    def wait_for(self, reason: str, *, blamed: str = "") -> None:
        """What idle engines wait for while no episode is open; or, if somebody holds everything up, for that."""
        self._waits.change(reason, blamed=blamed)

    def waits(self) -> list[Wait]:
        """Who waits for tokens, oldest first."""
        now = self._clock.now()
        waiting = [Wait("tokens", str(member), now - since) for member, (_, since) in self._futures.items()]
        return sorted(waiting, key=lambda wait: -wait.age)

    @property
    def stats(self) -> EngineStats:
        """Of all ranks together, as of their last visits."""
        if len(self._ranks) == 1:
            return self._ranks[0].stats
        names = EngineStats.__struct_fields__
        return EngineStats(**{name: sum(getattr(rank.stats, name) for rank in self._ranks) for name in names})

    def _prefilled(self) -> int:
        return sum(rank.stats.prefilled for rank in self._ranks)

    # -- the engines' side -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        await _together([rank.run() for rank in self._ranks])

    def _deliver(self, finished: list[Finished]) -> None:
        for turn in sorted(finished, key=lambda turn: turn.member):
            future, _ = self._futures.pop(turn.member, (None, 0.0))
            if future is not None and not future.done():
                future.set_result(turn.sampled)


async def _together(works: list[Coroutine[Any, Any, T]]) -> list[T]:
    """All of them, or the error of the first that failed. Not by `asyncio.gather`, whose future would be reported as an
    error that nobody heard of wherever a run is broken off."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
