"""The only Sampler: it collects turns from episodes and hands each to the rank where its episode lives.

In lockstep (sync mode, one rank) a batch is formed when every open episode waits for tokens, in member order, and is
run to its end: batch composition depends on nothing but the tokens. Otherwise turns join an engine whenever it comes
by, and finished ones leave at once: environment latency never blocks generation.

A turn is answered once, by the rank that has it now and in that rank's present life: an answer that comes twice, late
or from a rank that is given up is dropped.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from springtide.core.member import Member
from springtide.core.sampling import Sampled, SampleRequest
from springtide.core.version import PolicyVersion
from springtide.ports.clock import Clock
from springtide.ports.engine import Engine, EngineStats, Finished, KvPolicy
from springtide.ports.executor import Executor
from springtide.runtime.crew import Crew
from springtide.runtime.deadline import Deadline
from springtide.runtime.parting import Parting
from springtide.runtime.rank import Rank
from springtide.runtime.together import together
from springtide.runtime.waits import Waits
from springtide.scheduling.divergence import DivergenceBudget
from springtide.scheduling.membership import Membership
from springtide.scheduling.placement import GroupAffinity
from springtide.scheduling.priority import Oldest, Priority
from springtide.scheduling.readiness import ReadinessFold
from springtide.scheduling.refresh import Refresh
from springtide.scheduling.residency import Residency
from springtide.telemetry.ledger import Ledger
from springtide.telemetry.status import Wait

LANE = "engine"
"""The lane of the one rank; of several, the first part of their lanes' names."""


def lanes(ranks: int) -> list[str]:
    """The names of the lanes of so many ranks."""
    return [LANE] if ranks == 1 else [f"{LANE}-{number}" for number in range(ranks)]


def _no_residency(engine: Engine) -> None:
    """The engine decides, when it needs room."""


@dataclass(slots=True)
class Pending:
    """A turn without an answer, asked for at `since`. `rank` has it since `at`; None has it while no rank rolls out."""

    request: SampleRequest
    future: asyncio.Future[Sampled]
    since: float
    rank: int | None = None
    at: float = 0.0


class Dispatch:
    """Implements the Sampler port over one engine or several. `run` drives them until cancelled.

    `residency` makes the object that decides which KV stays on the device, one per engine. `refresh` and `budget` are
    for all of them: what idle engines compute again, and whether KV of earlier versions may be sampled over. `priority`
    says which ready turns go first. `deadline`: seconds that a rank may take for a turn, waiting included, or for new
    weights; then `died` is told (rank, epoch).
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
        deadline: float | None = None,
        priority: Priority | None = None,
    ) -> None:
        assert len(engines) == 1 or not lockstep, "a lockstep batch is formed on one rank"
        self._clock = clock
        self._waits = Waits(clock.now)
        self._priority = priority or Oldest()
        names = lanes(len(engines))

        def make(number: int, engine: Engine, epoch: int) -> Rank:
            return Rank(
                lane=names[number],
                engine=engine,
                executor=executor,
                ledger=ledger,
                waits=self._waits,
                deliver=partial(self._deliver, number, epoch),
                part=self._move,
                lockstep=lockstep,
                decode_steps=decode_steps,
                priority=self._priority,
                residency=residency(engine),
                refresh=refresh,
                budget=budget,
            )

        self._crew = Crew(engines, make, executor=executor)
        self._ranks = self._crew.ranks
        self._lanes = {lane: number for number, lane in enumerate(names)}
        self.budget = budget
        self.readiness = ReadinessFold(self._prefilled)
        self._placement = GroupAffinity(len(engines))
        self._homes: dict[Member, int] = {}
        self._homeless: dict[Member, Parting] = {}
        self._pending: dict[Member, Pending] = {}
        self._asking: dict[int, dict[Member, None]] = {}
        self.died: Callable[[int, int], None] = lambda rank, epoch: None
        self._deadline: Deadline | None = None
        if deadline is not None:
            self._deadline = Deadline(deadline, clock=clock, owed=self._owed, report=self._late)
            self._crew.asked = self._deadline.asked

    # -- episodes ----------------------------------------------------------------------------------------------------

    def open(self, member: Member) -> None:
        """An episode begins; in lockstep no batch forms without it until it is closed."""
        self.readiness.opened()
        self._settle(Parting(member))

    def close(self, member: Member) -> None:
        """The episode is over and its successors are open."""
        if member in self._homes:
            self.readiness.closed(member)
            self._unsettle(member)
        elif self._homeless.pop(member, None) is not None:
            self.readiness.closed(member)

    async def sample(self, request: SampleRequest) -> Sampled:
        member, now = request.member, self._clock.now()
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self.readiness.turn_ready(member, now)
        home = None if member in self._homeless else self._home(member)
        self._pending[member] = pending = Pending(request, future, now)
        self._asking.setdefault(member.group, {})[member] = None
        if home is not None:
            self._ask(pending, home)
        try:
            sampled = await future
            self.readiness.turn_ended(member, self._clock.now(), context=request.length, output=sampled.length)
            self._priority.sampled(member, sampled.length)
            return sampled
        except asyncio.CancelledError:
            self._pending.pop(member, None)
            if member in self._homes:
                self._ranks[self._homes[member]].cancel(member)
            raise
        finally:
            self._answered(member)

    def _answered(self, member: Member) -> None:
        asking = self._asking[member.group]
        del asking[member]
        if not asking:
            del self._asking[member.group]

    def reorder(self, groups: Iterable[int] | None = None) -> None:
        """What the priority of these groups' turns goes by has changed; by default, that of all."""
        for group in list(self._asking) if groups is None else groups:
            for member in self._asking.get(group, ()):
                pending = self._pending.get(member)
                if pending is not None and pending.rank is not None:
                    self._ranks[pending.rank].reorder(member)

    def _ask(self, pending: Pending, number: int) -> None:
        pending.rank, pending.at = number, self._clock.now()
        self._ranks[number].enqueue(pending.request)
        if self._deadline is not None:
            self._deadline.asked()

    def wait_for(self, reason: str, *, blamed: str = "") -> None:
        """What idle engines wait for while no episode is open; or, if somebody holds everything up, for that."""
        self._waits.change(reason, blamed=blamed)

    def waits(self) -> list[Wait]:
        """Who waits for tokens, oldest first."""
        now = self._clock.now()
        waiting = [Wait("tokens", str(member), now - pending.since) for member, pending in self._pending.items()]
        return sorted(waiting, key=lambda wait: -wait.age)

    # -- homes -------------------------------------------------------------------------------------------------------

    def _home(self, member: Member) -> int:
        """Where the member's next turn goes."""
        return self._homes[member]

    def _settle(self, parting: Parting) -> None:
        """An episode gets a rank, with what it brings along; while none rolls out, it waits for one."""
        member = parting.member
        if not self._placement.active:
            self._homeless[member] = parting
            return
        number = self._homes[member] = self._placement.place(member)
        self._ranks[number].open(member)
        if parting.handed is not None or parting.session is not None:
            self._ranks[number].join(parting)
        pending = self._pending.get(member)
        if pending is not None and pending.rank is None:
            self._ask(pending, number)

    def _unsettle(self, member: Member) -> None:
        self._placement.forget(member)
        self._ranks[self._homes.pop(member)].close(member)

    def _move(self, partings: Iterable[Parting]) -> None:
        """Whoever left a rank goes on elsewhere, unless its episode is over by now."""
        for parting in partings:
            member = parting.member
            if member not in self._homes:
                continue
            if parting.request is not None and member in self._pending:
                self._pending[member].rank = None
            self._placement.forget(member)
            del self._homes[member]
            self._settle(parting)

    # -- ranks -------------------------------------------------------------------------------------------------------

    @property
    def rollout_ranks(self) -> int:
        return len(self._placement.active)

    def roll_out_on(self, ranks: int | Iterable[int]) -> tuple[int, ...]:
        """On these ranks, or the first so many, from now on. The ranks that leave are returned: what runs on them is
        ended there, and everybody else moves on at once, with its KV."""
        chosen = dict.fromkeys(range(ranks) if isinstance(ranks, int) else sorted(ranks))
        self._placement.restrict(chosen)
        before = [rank.employ(number in chosen) for number, rank in enumerate(self._ranks)]
        if chosen:
            homeless, self._homeless = self._homeless, {}
            for parting in homeless.values():
                self._settle(parting)
        return tuple(number for number, employed in enumerate(before) if employed and number not in chosen)

    async def pause(self) -> None:
        """No rank is at work from now on, and their devices are free for other work: KV is in host memory, as far as
        there is room. Turns that run go on after `resume`."""
        await self._crew.pause(self._clock.now())

    def resume(self) -> None:
        if self._crew.paused:
            for pending in self._pending.values():
                pending.at = self._clock.now()
            self._crew.resume()

    async def drained(self, ranks: Iterable[int]) -> None:
        """None of these ranks has an episode any more. One that rolls out again, or dies, is not waited for."""
        for rank in [self._ranks[number] for number in ranks]:
            await rank.drained()

    def follow(self, membership: Membership) -> None:
        """From now on `membership` says whose answers count."""
        self._crew.membership = membership

    def lose(self, number: int) -> None:
        """A rank is dead. Its episodes go on elsewhere without their KV, and its turns are asked for again."""
        self._crew.bury(number)
        if number in self._placement.active:
            self._placement.restrict(rank for rank in self._placement.active if rank != number)
        orphans = [member for member, home in self._homes.items() if home == number]
        self._move(
            Parting(member, self._pending[member].request if member in self._pending else None) for member in orphans
        )

    def revive(self, number: int, engine: Engine) -> None:
        """A rank is there again, and rolls out when it is told to."""
        self._crew.revive(number, engine)

    async def bring_up(self, number: int) -> None:
        """The newest version on a rank that came back. SpringtideError if it does not hold it then."""
        await self._crew.bring_up(number, self._clock.now())

    def lane(self, number: int) -> str:
        return self._ranks[number].lane

    async def load(self, *, expected: PolicyVersion, weights: Any, kv: KvPolicy) -> PolicyVersion:
        """New weights on every rank, between two of its visits; the proof of the first that holds others, if any."""
        return await self._crew.load(expected=expected, weights=weights, kv=kv, now=self._clock.now())

    @property
    def stats(self) -> EngineStats:
        """Of all ranks together, as of their last visits."""
        return self._crew.stats

    def stats_of(self, lane: str) -> EngineStats:
        """Of the rank on that lane, in all its lives, as of its last visit."""
        return self._crew.stats_of(self._lanes[lane])

    def _prefilled(self) -> int:
        return self._crew.stats.prefilled

    async def run(self) -> None:
        await together([self._crew.run(), *([] if self._deadline is None else [self._deadline.watch()])])

    def _deliver(self, number: int, epoch: int, finished: list[Finished]) -> None:
        """What a rank says that lives since `epoch`."""
        if not self._crew.membership.hears(number, epoch):
            return
        for turn in sorted(finished, key=lambda turn: turn.member):
            pending = self._pending.get(turn.member)
            if pending is None or pending.rank != number or pending.request.turn != turn.turn:
                continue
            del self._pending[turn.member]
            if not pending.future.done():
                pending.future.set_result(turn.sampled)

    # -- the deadline ------------------------------------------------------------------------------------------------

    def _owed(self) -> Iterable[tuple[int, float]]:
        yield from self._crew.changing()
        if not self._crew.paused:
            yield from ((pending.rank, pending.at) for pending in self._pending.values() if pending.rank is not None)

    def _late(self, rank: int) -> None:
        self.died(rank, self._crew.membership.since[rank])
