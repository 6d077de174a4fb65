"""The only Sampler: it collects turns from episodes and drives the engine, one visit to its lane at a time.

In lockstep (sync mode) a batch is formed when every open episode waits for tokens, in member order, and is run to its
end: batch composition depends on nothing but the tokens. Otherwise turns join the engine whenever it comes by, and
finished ones leave at once: environment latency never blocks generation.
"""

import asyncio
from functools import partial
from typing import Any

from springtide.core.member import Member
from springtide.core.sampling import Sampled, SampleRequest
from springtide.core.version import PolicyVersion
from springtide.ports.clock import Clock
from springtide.ports.engine import Engine, EngineStats, Finished, KvPolicy
from springtide.ports.executor import Executor
from springtide.telemetry.ledger import Ledger
from springtide.telemetry.status import Wait

LANE = "engine"

HANDOVERS = 2
"""Handovers of a version that are tried: one that failed its proof is repeated once."""


class Dispatch:
    """Implements the Sampler port over one engine. `run` drives it until cancelled.

    `stats` are the engine's as of the end of the last visit: nobody looks into an engine that is at work.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        executor: Executor,
        clock: Clock,
        ledger: Ledger,
        lockstep: bool,
        decode_steps: int = 8,
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._clock = clock
        self._lane = ledger.lane(LANE)
        self._lockstep = lockstep
        self._decode_steps = decode_steps
        self._open: dict[Member, float] = {}
        self._queue: list[SampleRequest] = []
        self._futures: dict[Member, tuple[asyncio.Future[Sampled], float]] = {}
        self._releases: list[Member] = []
        self._cancels: list[Member] = []
        self._engine_busy = False
        self._wake = asyncio.Event()
        self.stats = EngineStats()
        self._idle = True
        self._reason = "start"
        self._blamed = ""

    # -- episodes ----------------------------------------------------------------------------------------------------

    def open(self, member: Member) -> None:
        """An episode begins; in lockstep no batch forms without it until it is closed."""
        self._open[member] = self._clock.now()

    def close(self, member: Member) -> None:
        """The episode is over and its successors are open."""
        if self._open.pop(member, None) is not None:
            self._releases.append(member)
            self._wake.set()

    async def sample(self, request: SampleRequest) -> Sampled:
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._futures[request.member] = (future, self._clock.now())
        self._queue.append(request)
        self._wake.set()
        try:
            return await future
        except asyncio.CancelledError:
            self._queue = [queued for queued in self._queue if queued.member != request.member]
            self._cancels.append(request.member)
            self._futures.pop(request.member, None)
            self._wake.set()
            raise

    async def load(self, *, expected: PolicyVersion, weights: Any, kv: KvPolicy) -> PolicyVersion:
        """New weights between two visits, sessions alive; what the engine proves that it holds.

        A handover that fails its proof is repeated within the visit: no token is sampled from it.
        """
        work = partial(self._load, expected, weights, kv)
        return await self._executor.run(LANE, work, name="load_weights")

    def wait_for(self, reason: str, *, blamed: str = "") -> None:
        """What an idle engine waits for while no episode is open; or, if somebody holds everything up, for that."""
        self._reason, self._blamed = reason, blamed
        if self._idle:
            self._declare_wait()

    def waits(self) -> list[Wait]:
        """Who waits for tokens, oldest first."""
        now = self._clock.now()
        waiting = [Wait("tokens", str(member), now - since) for member, (_, since) in self._futures.items()]
        return sorted(waiting, key=lambda wait: -wait.age)

    # -- the engine's side -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            self._idle = True
            self._declare_wait()
            while not self._ready():
                self._wake.clear()
                await self._wake.wait()
                self._declare_wait()
            self._idle = False
            self._lane.wait_for("dispatch")
            requests, self._queue = self._queue, []
            requests.sort(key=lambda request: request.member)
            cancels, self._cancels = sorted(self._cancels), []
            releases, self._releases = sorted(self._releases), []
            visit = partial(self._visit, requests, cancels, releases)
            finished, self._engine_busy = await self._executor.run(LANE, visit, name="generate")
            self._deliver(finished)

    def _ready(self) -> bool:
        if self._lockstep:
            return bool(self._queue) and len(self._queue) == len(self._open)
        return bool(self._queue or self._engine_busy or self._releases or self._cancels)

    def _declare_wait(self) -> None:
        self._lane.wait_for(self._blamed or ("environment" if self._open else self._reason))

    def _visit(
        self, requests: list[SampleRequest], cancels: list[Member], releases: list[Member]
    ) -> tuple[list[Finished], bool]:
        for member in cancels:
            self._engine.cancel(member)
        for member in releases:
            self._engine.release(member)
        if requests:
            self._engine.submit(requests)
        finished = self._engine.step(max_decode_steps=self._decode_steps)
        while self._lockstep and self._engine.has_work():
            finished += self._engine.step(max_decode_steps=self._decode_steps)
        self.stats = self._engine.stats()
        return finished, self._engine.has_work()

    def _load(self, expected: PolicyVersion, weights: Any, kv: KvPolicy) -> PolicyVersion:
        for _ in range(HANDOVERS):
            proof = self._engine.load_weights(number=expected.number, weights=weights, kv=kv)
            if proof == expected:
                break
        return proof

    def _deliver(self, finished: list[Finished]) -> None:
        for turn in sorted(finished, key=lambda turn: turn.member):
            future, _ = self._futures.pop(turn.member, (None, 0.0))
            if future is not None and not future.done():
                future.set_result(turn.sampled)
