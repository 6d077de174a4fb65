"""A rank in rollout, modelled: KV residency, prefill and decode as the service costs say, no event per token.

A visit (`step`) admits queued turns, computes what they lack, and decodes until the first turn ends or it is full.
What they lack is computed in the passes that decode the others (chunked prefill); without any it is a pass of its own.
All sequences of a batch advance together, so the time of a stretch of decode steps is a closed form, and the end of a
turn is a point on the rank's own count of decode steps.

KV comes back from host memory on a copy stream of its own, one session after the other, while the batch decodes on. A
turn enters when its KV is there; the rank waits for that only when it has nothing else to do.
"""

import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from springtide.core.member import Member
from springtide.core.sampling import SampleRequest
from springtide.core.version import PolicyVersion
from springtide.ports.engine import EngineCapabilities, EngineStats, Finished, HandedOver, KvPolicy, StaleKv
from springtide.simulation.cluster import Cluster
from springtide.simulation.kv import KvMemory, Place, Session
from springtide.simulation.meter import Meter
from springtide.simulation.stretch import INSTANT, steps_in
from springtide.simulation.turn import Arriving, ModelledRequest, ModelledSample, Running


class ModelledEngine:
    """Implements the Engine port for modelled requests.

    `meter` counts what it does and what that takes; `spent` is what the last visit took: seconds by bin. `evicts` says
    where paused sessions go when room is needed that nobody made: to host memory, or nowhere. `now` is the time at
    which a visit begins. KV that is more than `gap` versions old is computed again when its turn comes. Nothing is
    probed, as there is no model.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        now: Callable[[], float],
        evicts: Literal["warm", "cold"] = "cold",
        gap: int = 1,
    ) -> None:
        self.meter = Meter(cluster.costs)
        self._now = now
        self._evicts: Literal["warm", "cold"] = evicts
        self._gap = gap
        self._shares_all = cluster.shares_prompts == "all"
        self._memory = KvMemory(capacity=cluster.kv_tokens, host=cluster.host_tokens)
        self.capabilities = EngineCapabilities(
            owns_residency=True,
            capacity_tokens=cluster.kv_tokens,
            max_batch=cluster.max_batch,
            max_context=cluster.kv_tokens,
        )
        self.version = self._dropped_at = 0
        self._steps = 0
        self._queue: deque[ModelledRequest] = deque()
        self._batch: dict[Member, Running] = {}
        self._ends: list[tuple[int, Member]] = []
        self._context = 0
        self._arriving: dict[Member, Arriving] = {}
        self._arrivals: deque[tuple[float, Member]] = deque()
        self._stream_free = 0.0
        self._partial: dict[Member, list[tuple[int, int]]] = {}

    @property
    def spent(self) -> dict[str, float]:
        return self.meter.spent

    # -- the port ----------------------------------------------------------------------------------------------------

    def submit(self, requests: list[SampleRequest]) -> None:
        for request in requests:
            assert isinstance(request, ModelledRequest)
            self._queue.append(request)
            if request.member in self._memory.paused:
                del self._memory.paused[request.member]
                self._memory.waiting[request.member] = None

    def has_work(self) -> bool:
        return bool(self._queue or self._batch or self._arriving)

    def step(self, *, max_decode_steps: int) -> list[Finished]:
        self.meter.begin()
        end = self._steps + max_decode_steps
        finished: list[Finished] = []
        if self.has_work():
            self.meter.visit()
        while self._steps < end and not finished:
            self._admit()
            if self._batch:
                self._decode(min(end, self._next_end()) - self._steps)
                finished = list(self._finish())
            elif self._arriving:
                self.meter.wait(max(0.0, self._arrivals[0][0] - self._time()))
            else:
                break
        return finished

    def cancel(self, member: Member) -> None:
        self._queue = deque(request for request in self._queue if request.member != member)
        self._partial.pop(member, None)
        if member in self._memory.waiting:
            del self._memory.waiting[member]
            self._memory.paused[member] = None
        if member in self._arriving:
            self._turn_away(member)
            self._memory.paused[member] = None
        running = self._batch.pop(member, None)
        if running is not None:
            self._leave(running)

    def release(self, member: Member) -> None:
        self._partial.pop(member, None)
        self._memory.remove(member)

    def demote(self, member: Member, to: Literal["warm", "cold"]) -> None:
        session = self._memory.get(member)
        if session is None or session.place in ("cold", to):
            return
        if session.place == "warm" or member in self._memory.paused:
            self._memory.move(session, to)

    def prefetch(self, member: Member) -> None:
        """The copy begins at once, if there is room without evicting anybody."""
        session = self._memory.get(member)
        if session is not None and session.place == "warm":
            room = self._memory.capacity - self._memory.hot
            if self._memory.needed(session, session.kv) <= room:
                self._reload(session, session.kv, begin=self._now())
                self._memory.paused[member] = None

    def suspend(self) -> None:
        self._stop()
        for member in list(self._memory.hot_sessions()):
            self._memory.move(self._memory[member], self._evicts)

    def hand_over(self, member: Member) -> HandedOver | None:
        """Through host memory, where there is any: its copy is there as soon as its KV is."""
        handed = self._memory.hand_over(member)
        return handed if self._hands_over() else None

    def take_over(self, member: Member, handed: HandedOver) -> int:
        return self._memory.take_over(member, handed, since=self._dropped_at)

    def _hands_over(self) -> bool:
        return self._evicts == "warm"

    def load_weights(self, *, number: int, weights: Any, kv: KvPolicy) -> PolicyVersion:
        self.version = number
        for running in self._batch.values():
            self._settle(running)
            running.version = number
        if kv == "recompute":
            self._dropped_at = number
            self._stop()
            self._memory.drop_all()
        else:
            self._drop_outdated()
        return PolicyVersion(number=number, digest=str(weights))

    def trust_kv(self, trusted: bool) -> None:
        assert trusted, "only a probe distrusts"

    def stale(self) -> list[StaleKv]:
        self.meter.begin()
        sessions = [self._memory[member] for member in self._memory.paused]
        return [
            StaleKv(
                member=session.member,
                tokens=session.kv,
                fresh=session.versions.leading(self.version),
                oldest=session.versions.oldest,
            )
            for session in sessions
            if session.versions.gap(self.version) and session.arrives <= self._now() + INSTANT
        ]

    def refresh(self, member: Member, tokens: int) -> int:
        self.meter.begin()
        if member not in self._memory.paused:
            return 0
        session = self._memory[member]
        before = fresh = session.versions.leading(self.version)
        if self._memory.has_prompt(member, prefix=session.common, version=self.version):
            fresh = max(fresh, min(session.common, session.kv))
        new = min(tokens, session.kv - fresh)
        if new > 0:
            self.meter.refresh(new, fresh)
        session.versions.renew(fresh + new, self.version)
        return fresh + new - before

    def probe(self) -> None:
        """There is nothing to score."""

    def stats(self) -> EngineStats:
        memory = self._memory
        return EngineStats(
            **self.meter.counts,  # type: ignore[arg-type]
            demotions=memory.demotions,
            hot_tokens=memory.hot,
            warm_tokens=memory.warm,
            hot_sessions=len(memory.paused) + len(memory.waiting) + len(self._batch) + len(self._arriving),
            running=len(self._batch),
        )

    def place(self, member: Member) -> Place:
        """Where the member's KV is; on the device also while it is on its way there."""
        session = self._memory.get(member)
        return session.place if session is not None else "cold"

    # -- admission ---------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Turns whose KV has arrived, then queued ones in order while the batch and the KV have room: the first that
        does not fit waits for it.
        """
        begin = self._time()
        decoding = bool(self._batch)
        computes = False
        while self._arrivals and self._arrivals[0][0] <= begin + INSTANT:
            _, member = self._arrivals.popleft()
            arriving = self._arriving.pop(member)
            computes |= self._enter(arriving.request, arriving.held)
        while self._queue and len(self._batch) + len(self._arriving) < self.capabilities.max_batch:
            request = self._queue[0]
            session = self._memory.session(request.member, common=request.prefix)
            if self._is_outdated(session):
                self._memory.move(session, "cold")
            needed = self._memory.needed(session, request.context + 1)
            if not self._memory.make_room(needed, to=self._evicts, keep=request.member):
                break
            self._queue.popleft()
            computes |= self._start(session, request, begin)
        if computes:
            self.meter.prefill(joins=decoding)

    def _start(self, session: Session, request: ModelledRequest, begin: float) -> bool:
        """A turn for which there is room enters, or its reload begins. Whether anything had to be computed."""
        self._memory.waiting.pop(request.member, None)
        held = session.kv
        if session.place == "warm":
            self._reload(session, request.context, begin=begin)
        if session.place == "hot" and session.arrives > begin + INSTANT:
            self._memory.hold(session, request.context)
            self._arriving[request.member] = Arriving(request, held)
            insort(self._arrivals, (session.arrives, request.member))
            return False
        return self._enter(request, held)

    def _reload(self, session: Session, room: int, *, begin: float) -> None:
        """Onto the copy stream, into `room` tokens of the device."""
        self._stream_free = session.arrives = max(begin, self._stream_free) + self.meter.reload(session.kv)
        self._memory.hold(session, room)

    def _enter(self, request: ModelledRequest, kv: int) -> bool:
        """Put a turn into the batch whose session has `kv` tokens here. Whether anything had to be computed for it."""
        member = request.member
        session = self._memory[member]
        version = self._samples_from(member)
        represented = min(request.reusable, request.context)
        if session.place == "hot":
            held = min(kv, request.reusable)
            session.versions.truncate(held)
        else:
            prefix, shared = min(request.prefix, request.context), request.shared if self._shares_all else 0
            held = self._memory.shared(member, prefix=prefix, shared=shared, version=version)
            session.versions.extend(held, version)
        lost = max(0, represented - held)
        fresh = request.context - held - lost
        self.meter.count("reused", min(held, represented))
        self.meter.count("reprefilled", lost)
        self.meter.count("prefilled", fresh)
        if lost + fresh:
            self.meter.turn()
        self.meter.compute("recompute", lost, held)
        self.meter.compute("prefill", fresh, held + lost)
        session.versions.extend(request.context - held, version)
        self._memory.hold(session, request.context)
        running = Running(request, self._steps, self._steps + request.output, version, self._steps)
        running.versions = self._partial.pop(member, [])
        self._batch[member] = running
        heapq.heappush(self._ends, (running.end, member))
        self._context += request.context
        return lost + fresh > 0

    def _samples_from(self, member: Member) -> int:
        return self.version

    def _turn_away(self, member: Member) -> ModelledRequest:
        """A turn that waits for its KV gives back the room that it took; the session is hot with what it had."""
        arriving = self._arriving.pop(member)
        session = self._memory[member]
        self._arrivals.remove((session.arrives, member))
        self._memory.hold(session, arriving.held)
        return arriving.request

    def _time(self) -> float:
        return self._now() + self.meter.elapsed

    # -- decoding ----------------------------------------------------------------------------------------------------

    def _next_end(self) -> int:
        while (running := self._batch.get(self._ends[0][1])) is None or running.end != self._ends[0][0]:
            heapq.heappop(self._ends)
        return self._ends[0][0]

    def _decode(self, steps: int) -> None:
        """`steps` decode steps of the whole batch; fewer if KV has no room for them, or arrives before."""
        while not self._make_room(len(self._batch)) and len(self._batch) + len(self._arriving) > 1:
            self._preempt()
        batch = len(self._batch)
        if self._arrivals:
            left = self._arrivals[0][0] - self._time()
            steps = min(steps, steps_in(self.meter.costs, left, batch=batch, context=self._context))
        if not self._make_room(batch * steps):
            steps = max(1, (self._memory.capacity - self._memory.hot) // batch)
        self.meter.decode(steps, batch=batch, context=self._context)
        self._steps += steps
        self._context += batch * steps
        self._memory.hot += batch * steps

    def _make_room(self, tokens: int) -> bool:
        return self._memory.make_room(tokens, to=self._evicts)

    def _preempt(self) -> None:
        """The newest turn goes back to the head of the queue, and its KV where evicted KV goes."""
        if self._arrivals:
            member = self._arrivals[-1][1]
            self._queue.appendleft(self._turn_away(member))
        else:
            member = next(reversed(self._batch))
            self._queue.appendleft(self._interrupt(member))
        self.meter.count("preemptions")
        self._memory.move(self._memory[member], self._evicts)

    def _interrupt(self, member: Member) -> ModelledRequest:
        """Out of the batch; the turn that does the rest."""
        running = self._batch.pop(member)
        done = self._steps - running.begun
        self._leave(running)
        self._partial[member] = running.versions
        length = running.request.context + done
        return msgspec.structs.replace(
            running.request, context=length, reusable=length, output=running.request.output - done
        )

    def _finish(self) -> Iterator[Finished]:
        while self._ends and self._ends[0][0] <= self._steps:
            end, member = heapq.heappop(self._ends)
            running = self._batch.get(member)
            if running is not None and running.end == end:
                del self._batch[member]
                self._leave(running)
                sampled = ModelledSample(counts=tuple(running.versions))
                yield Finished(member=member, turn=running.request.turn, sampled=sampled)

    def _leave(self, running: Running) -> None:
        """Out of the batch: the session pauses with the KV of all that was computed."""
        self._settle(running)
        length = running.request.context + self._steps - running.begun
        self._context -= length
        session = self._memory[running.request.member]
        session.kv = length
        self._memory.paused[session.member] = None

    def _settle(self, running: Running) -> None:
        self._memory[running.request.member].versions.extend(self._steps - running.since, running.version)
        running.settle(self._steps)

    def _is_outdated(self, session: Session) -> bool:
        return session.versions.gap(self.version) > self._gap

    def _drop_outdated(self) -> None:
        """Running turns whose KV is now too old compute their context again; others are looked at when they enter."""
        for member in self._stop(lambda member: self._is_outdated(self._memory[member])):
            self._memory.move(self._memory[member], "cold")

    def _stop(self, stops: Callable[[Member], bool] = lambda _: True) -> list[Member]:
        """What runs, of these, is at the head of the queue, in order."""
        arriving = [member for _, member in reversed(self._arrivals) if stops(member)]
        running = [member for member in reversed(self._batch) if stops(member)]
        self._queue.extendleft(self._turn_away(member) for member in arriving)
        self._queue.extendleft(self._interrupt(member) for member in running)
        return arriving + running
