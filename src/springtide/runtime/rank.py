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
from springtide.runtime.steering import Steering
from springtide.scheduling.divergence import DivergenceBudget
from springtide.scheduling.priority import Priority
from springtide.scheduling.refresh import Refresh
from springtide.scheduling.residency import Residency
from springtide.telemetry.ledger import Ledger, SharedWait

log = logging.getLogger(__name__)

HANDOVERS = 2
"""Handovers of a version that are tried: one that failed its proof is repeated once."""


OTHER_ROLE = "other_role"
"""The bin of a rank's time while it does not roll out; what it does then is in the books of that role."""


class Waits:
    """What idle ranks wait for: `pausing` those where episodes live, `empty` the others."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.pausing = SharedWait("environment", now)
        self.empty = SharedWait("start", now)

    def change(self, reason: str, *, blamed: str) -> None:
        """Empty ranks wait for `reason`; all of them for `blamed`, if somebody holds everything up."""
        self.pausing.change(blamed or "environment")
        self.empty.change(blamed or reason)


class Rank:
    """`run` drives the engine until cancelled. In `lockstep` a visit begins when every open episode waits for tokens,
    and takes the batch to its end; otherwise turns join whenever the engine comes by.

    With a `residency`, which lockstep and engines that decide by themselves do without, it says what KV stays on the
    device and which ready turns the engine gets; without, the engine gets them all, in the order of `priority`;
    in lockstep that is the order of members.

    With a `refresh`, KV of earlier versions is computed again, piece by piece, while there is nothing else to do. What
    the engine's probe finds is told to `budget`, which says whether such KV may be sampled over.

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
        waits: "Waits",
        deliver: Callable[[list[Finished]], None],
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
        self._queue: list[SampleRequest] = []
        self._releases: list[Member] = []
        self._cancels: list[Member] = []
        self._busy = False
        self._wake = asyncio.Event()
        self._idle = True
        self._employed = True

    def employ(self, employed: bool) -> None:
        """Whether this rank rolls out; else it has another role, and ends what it has begun."""
        self._employed = employed
        if self._idle:
            self._declare_wait()

    def open(self, member: Member) -> None:
        self._open.add(member)
        if self._idle:
            self._declare_wait()

    def close(self, member: Member) -> None:
        self._open.discard(member)
        self._releases.append(member)
        if self._steering is not None:
            self._steering.closed(member)
        self._wake.set()

    def enqueue(self, request: SampleRequest) -> None:
        self._queue.append(request)
        if self._steering is not None:
            self._steering.ready(request, self._priority.of(request.member))
        self._wake.set()

    def reorder(self, member: Member) -> None:
        """What the place of its turn goes by has changed."""
        if self._steering is not None:
            self._steering.reordered(member, self._priority.of(member))

    def cancel(self, member: Member) -> None:
        self._queue = [queued for queued in self._queue if queued.member != member]
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
            requests, self._queue = self._queue, []
            cancels, self._cancels = sorted(self._cancels), []
            releases, self._releases = sorted(self._releases), []
            if self._steering is None:
                requests.sort(key=lambda request: (self._priority.of(request.member), request.member))
                choose = partial(_all_of, requests)
            else:
                choose = partial(self._steering.choose, self._steering.notes(), self._waits.now())
            visit = partial(self._visit, choose, cancels, releases, self._trusts)
            finished, self._busy = await self._executor.run(self.lane, visit, name="generate")
            if self._steering is not None:
                self._steering.ended(finished)
            self._deliver(finished)
            self._may_be_stale = self._may_be_stale or bool(finished)
            if self.stats.probes_due:
                await self._executor.run(self.lane, self._probe, name="probe")
                self._judge()

    @property
    def _trusts(self) -> bool:
        return self._budget is None or self._budget.trusted

    def _may_refresh(self) -> bool:
        return self._refresh is not None and self._may_be_stale and self._employed

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
        if self._lockstep:
            return bool(self._queue) and len(self._queue) == len(self._open)
        return bool(self._queue or self._busy or self._releases or self._cancels)

    def _declare_wait(self) -> None:
        if not self._employed:
            self._ledger.wait_for(OTHER_ROLE)
        else:
            self._ledger.wait_for(self._waits.pausing if self._open else self._waits.empty)

    def _visit(
        self, choose: Callable[[], list[SampleRequest]], cancels: list[Member], releases: list[Member], trusts: bool
    ) -> tuple[list[Finished], bool]:
        if self._before is None:
            self._before = self._engine.stats()
        self._engine.trust_kv(trusts)
        for member in cancels:
            self._engine.cancel(member)
        for member in releases:
            self._engine.release(member)
        requests = choose()
        if requests:
            self._engine.submit(requests)
        finished = self._engine.step(max_decode_steps=self._decode_steps)
        while self._lockstep and self._engine.has_work():
            finished += self._engine.step(max_decode_steps=self._decode_steps)
        self._count()
        held = self._steering is not None and self._steering.holds
        return finished, held or self._engine.has_work()

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
