"""One engine and its lane: turns in, visits to the lane, finished turns out."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from springtide.core.member import Member
from springtide.core.sampling import SampleRequest
from springtide.core.version import PolicyVersion
from springtide.ports.engine import Engine, EngineStats, Finished, KvPolicy
from springtide.ports.executor import Executor
from springtide.runtime.orders import Orders, Stays
from springtide.runtime.parting import Parting
from springtide.runtime.steering import Note, Steering
from springtide.runtime.waits import Waits
from springtide.scheduling.divergence import DivergenceBudget
from springtide.scheduling.priority import Priority
from springtide.scheduling.refresh import Refresh
from springtide.scheduling.residency import Residency
from springtide.telemetry.ledger import Ledger

log = logging.getLogger(__name__)

HANDOVERS = 2
"""Handovers of a version that are tried: one that failed its proof is repeated once."""


OTHER_ROLE = "other_role"
"""The bin of a rank's time while it does not roll out; what it does then is in the books of that role."""


DEAD = "dead"
"""The bin of a rank's time from its death until it is back."""


class Rank:
    """`run` drives the engine until cancelled. In `lockstep` a visit begins when every open episode waits for tokens,
    and takes the batch to its end; otherwise turns join whenever the engine comes by.

    With a `residency`, which lockstep and engines that decide by themselves do without, it says what KV stays on the
    device and which ready turns the engine gets; without, the engine gets them all, in the order of `priority`;
    in lockstep that is the order of members.

    With a `refresh`, KV of earlier versions is computed again, piece by piece, while there is nothing else to do. What
    the engine's probe finds is told to `budget`, which says whether such KV may be sampled over.

    While it is not employed it lets no turn in. Episodes leave it between two turns, with their KV, at the next visit:
    `part` is told of them before their turns are delivered. It has drained when none is left.

    `stats` are the engine's as of the end of the last visit, without what it did before this rank drove it: nobody
    looks into an engine that is at work.
    """

    def __init__(
        self,
        *,
        lane: str,
        engine: Engine,
        executor: Executor,
        ledger: Ledger,
        waits: Waits,
        deliver: Callable[[list[Finished]], None],
        part: Callable[[list[Parting]], None],
        lockstep: bool,
        decode_steps: int,
        priority: Priority,
        residency: Residency | None = None,
        refresh: Refresh | None = None,
        budget: DivergenceBudget | None = None,
    ) -> None:
        self.lane = lane
        self.stats = EngineStats()
        self._before: EngineStats | None = None
        self._engine = engine
        self._executor = executor
        self._ledger = ledger.lane(lane)
        self._waits = waits
        self._deliver = deliver
        self._part = part
        self._priority = priority
        self._lockstep = lockstep
        self._decode_steps = decode_steps
        self._steering: Steering | None = None
        if residency is not None and engine.capabilities.owns_residency and not lockstep:
            self._steering = Steering(residency, engine, waits.now)
        self._refresh = None if lockstep else refresh
        self._may_be_stale = False
        self._budget = budget
        self._judged = EngineStats()
        self._open: set[Member] = set()
        self._running: dict[Member, SampleRequest] = {}
        self._queue: list[SampleRequest] = []
        self._late: list[SampleRequest] = []
        self._arrivals: list[Parting] = []
        self._releases: list[Member] = []
        self._cancels: list[Member] = []
        self._busy = False
        self._wake = asyncio.Event()
        self._idle = True
        self._employed = True
        self._paused = self.buried = False
        self._leaving = self._parting = False
        self._drained = asyncio.Event()

    def employ(self, employed: bool) -> bool:
        """Whether this rank rolls out; else it has another role, and ends what it has begun. What it did before."""
        before, self._employed = self._employed, employed
        self._leaving = not employed
        if employed:
            self._drained.set()
        elif before:
            self._drained.clear()
            self._wake.set()
        if self._idle:
            self._declare_wait()
        return before

    async def pause(self) -> None:
        """No visit from now on; the device is free when the one that runs has ended."""
        if self._paused:
            return
        self.hold()
        steering = self._steering
        notes = [] if steering is None else steering.notes()
        await self._executor.run(self.lane, partial(self._vacate, notes, self._waits.now()), name="vacate")
        if self._idle:
            self._declare_wait()

    def hold(self) -> None:
        """No visit from now on."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._wake.set()

    def bury(self) -> None:
        """It is dead, and nothing of it counts any more."""
        self._employed, self.buried = False, True
        self._drained.set()
        self._declare_wait()

    async def drained(self) -> None:
        """Nobody is here any more, or the rank is employed again."""
        await self._drained.wait()

    def join(self, parting: Parting) -> None:
        """An episode comes from another rank; it is open here."""
        self._arrivals.append(parting)
        self._wake.set()

    def open(self, member: Member) -> None:
        self._open.add(member)
        if self._idle:
            self._declare_wait()

    def close(self, member: Member) -> None:
        self._open.discard(member)
        if self._arrivals:
            self._arrivals = [arrival for arrival in self._arrivals if arrival.member != member]
        self._releases.append(member)
        if self._steering is not None:
            self._steering.closed(member)
        self._wake.set()

    def enqueue(self, request: SampleRequest) -> None:
        self._running[request.member] = request
        self._wake.set()
        if not self._employed or self._parting:
            self._late.append(request)
            return
        self._queue.append(request)
        if self._steering is not None:
            self._steering.ready(request, self._priority.of(request.member))

    def reorder(self, member: Member) -> None:
        """What the place of its turn goes by has changed."""
        if self._steering is not None:
            self._steering.reordered(member, self._priority.of(member))

    def cancel(self, member: Member) -> None:
        self._running.pop(member, None)
        self._queue = [queued for queued in self._queue if queued.member != member]
        self._late = [late for late in self._late if late.member != member]
        self._cancels.append(member)
        if self._steering is not None:
            self._steering.cancelled(member)
        self._wake.set()

    async def load(self, *, expected: PolicyVersion, weights: Any, kv: KvPolicy) -> PolicyVersion:
        """New weights between two visits, sessions alive; what the engine proves that it holds.

        A handover that fails its proof is repeated within the visit: no token is sampled from it.
        """
        work = partial(self._load, expected, weights, kv, self._trusts)
        proof = await self._executor.run(self.lane, work, name="load_weights")
        self._may_be_stale = True
        self._wake.set()
        return proof

    async def run(self) -> None:
        while True:
            self._idle = True
            self._declare_wait()
            while not self._ready():
                if not self._employed and not self._paused:
                    assert not self._open, "whoever has no turn has left, and whoever has one is at work"
                    self._drained.set()
                if self._may_refresh():
                    self._may_be_stale = False
                    if await self._executor.run(self.lane, self._refresh_piece, name="refresh"):
                        self._may_be_stale = True
                    continue
                self._wake.clear()
                await self._wake.wait()
                self._declare_wait()
            self._idle = False
            self._ledger.wait_for("dispatch")
            visit = partial(self._visit, self._orders())
            finished, partings, self._busy = await self._executor.run(self.lane, visit, name="generate")
            self._ended(finished, partings)
            self._deliver(finished)
            self._may_be_stale = self._may_be_stale or bool(finished)
            if self.stats.probes_due:
                await self._executor.run(self.lane, self._probe, name="probe")
                self._judge()

    def _orders(self) -> Orders:
        """What the next visit is to do, for the lane."""
        if self._employed:
            late, self._late = self._late, []
            for request in late:
                self.enqueue(request)
        requests, self._queue = self._queue, []
        cancels, self._cancels = sorted(self._cancels), []
        releases, self._releases = sorted(self._releases), []
        arrivals, self._arrivals = self._arrivals, []
        now, steering = self._waits.now(), self._steering
        notes = [] if steering is None else steering.notes()
        choose: Callable[[], list[SampleRequest]]
        if steering is None:
            requests.sort(key=lambda request: (self._priority.of(request.member), request.member))
            choose = withdraw = partial(_all_of, requests)
        else:
            choose, withdraw = partial(steering.choose, notes, now), partial(steering.withdraw, notes, now)
        stays = None
        if not self._employed:
            late, self._late = self._late, []
            stays = Stays(withdraw, late, tuple(sorted(self._open)), frozenset(self._running))
        self._leaving, self._parting = False, stays is not None
        return Orders(choose, cancels, arrivals, releases, self._trusts, now, stays)

    def _ended(self, finished: list[Finished], partings: list[Parting]) -> None:
        """Of a visit."""
        for turn in finished:
            self._running.pop(turn.member, None)
        if self._steering is not None:
            self._steering.ended(finished)
        self._parting = False
        if not partings:
            return
        # Turns that came while the lane was letting their episodes go.
        late, self._late = {request.member: request for request in self._late}, []
        for place, parting in enumerate(partings):
            self._running.pop(parting.member, None)
            self._open.discard(parting.member)
            if parting.member in late:
                partings[place] = parting._replace(request=late.pop(parting.member))
        self._late = list(late.values())
        self._part(partings)

    @property
    def _trusts(self) -> bool:
        return self._budget is None or self._budget.trusted

    def _may_refresh(self) -> bool:
        return self._refresh is not None and self._may_be_stale and self._employed and not self._paused

    def _judge(self) -> None:
        """Tell the budget what was probed since the last time."""
        new, self._judged = self.stats.since(self._judged), self.stats
        if self._budget is None:
            return
        changed_at = self._budget.observed(tokens=new.probed, k3=new.probe_k3)
        if changed_at is None:
            return
        if self._budget.trusted:
            log.warning("KV is kept over weight updates again: its mean KL is down to %.1e per token.", changed_at)
        else:
            log.warning(
                "KV kept over weight updates has a mean KL of %.1e per token to fresh KV, above "
                "engine.divergence_budget = %g: until it is less, KV is recomputed.",
                changed_at,
                self._budget.budget,
            )

    def _ready(self) -> bool:
        if self._paused:
            return False
        if self._lockstep:
            return bool(self._queue) and len(self._queue) == len(self._open)
        work = self._queue or self._busy or self._releases or self._cancels or self._arrivals or self._late
        return bool(work) or (self._leaving and bool(self._open))

    def _declare_wait(self) -> None:
        if self.buried:
            self._ledger.wait_for(DEAD)
        elif not self._employed:
            self._ledger.wait_for(OTHER_ROLE)
        elif self._paused:
            self._ledger.wait_for("training")
        else:
            self._ledger.wait_for(self._waits.pausing if self._open else self._waits.empty)

    def _visit(self, orders: Orders) -> tuple[list[Finished], list[Parting], bool]:
        if self._before is None:
            self._before = self._engine.stats()
        self._engine.trust_kv(orders.trusts)
        for member in orders.cancels:
            self._engine.cancel(member)
        for arrival in orders.arrivals:
            self._take_over(arrival, orders.now)
        for member in orders.releases:
            self._engine.release(member)
        withdrawn: list[SampleRequest] = []
        if orders.stays is not None:
            withdrawn = orders.stays.withdraw() + orders.stays.late
        elif requests := orders.choose():
            self._engine.submit(requests)
        finished = self._engine.step(max_decode_steps=self._decode_steps)
        while self._lockstep and self._engine.has_work():
            finished += self._engine.step(max_decode_steps=self._decode_steps)
        self._count()
        partings = [] if orders.stays is None else self._partings(orders.stays, withdrawn, finished, orders.now)
        held = self._steering is not None and self._steering.holds
        return finished, partings, held or self._engine.has_work()

    def _vacate(self, notes: list[Note], now: float) -> None:
        if self._steering is not None:
            self._steering.vacate(notes, now)
        self._engine.suspend()

    def _take_over(self, arrival: Parting, now: float) -> None:
        if self._steering is not None:
            self._steering.join(arrival, now)
        elif arrival.handed is not None:
            self._engine.take_over(arrival.member, arrival.handed)

    def _partings(
        self, stays: Stays, withdrawn: list[SampleRequest], finished: list[Finished], now: float
    ) -> list[Parting]:
        """Everybody whose turn is not in the engine leaves."""
        requests = {request.member: request for request in withdrawn}
        inside = stays.running - set(requests) - {turn.member for turn in finished}
        leaving = [member for member in stays.open if member not in inside]
        return [
            Parting(
                member,
                requests.get(member),
                self._engine.hand_over(member),
                None if self._steering is None else self._steering.part(member, now),
            )
            for member in leaving
        ]

    def _refresh_piece(self) -> bool:
        """Whether there may be more to do."""
        assert self._refresh is not None
        piece = self._refresh.next(self._engine.stale())
        done = 0 if piece is None else self._engine.refresh(piece.member, piece.tokens)
        self._count()
        return done > 0

    def _probe(self) -> None:
        self._engine.probe()
        self._count()

    def _count(self) -> None:
        if self._before is not None:
            self.stats = self._engine.stats().since(self._before)

    def _load(self, expected: PolicyVersion, weights: Any, kv: KvPolicy, trusts: bool) -> PolicyVersion:
        self._engine.trust_kv(trusts)
        for _ in range(HANDOVERS):
            proof = self._engine.load_weights(number=expected.number, weights=weights, kv=kv)
            if proof == expected:
                break
        if self._steering is not None and kv == "recompute":
            self._steering.dropped()
        return proof


def _all_of(requests: list[SampleRequest]) -> list[SampleRequest]:
    return requests
