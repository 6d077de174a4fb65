"""A rank in rollout, modelled: KV residency, prefill and decode as the service costs say, no event per token.

A visit (`step`) admits queued turns, computes what they lack, and decodes until the first turn ends or it is full.
All sequences of a batch advance together, so the time of a stretch of decode steps is a closed form, and the end of a
turn is a point on the rank's own count of decode steps.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from springtide.core.member import Member
from springtide.core.sampling import Sampled, SampleRequest, SampleStop, SamplingParams
from springtide.core.version import PolicyVersion
from springtide.ports.engine import EngineCapabilities, EngineStats, Finished, KvPolicy
from springtide.simulation.cluster import Cluster

Place = Literal["hot", "warm", "cold"]


class ModelledRequest(SampleRequest, frozen=True, kw_only=True):
    """One turn. `context` tokens are presented; the first `reusable` of them are as the session's last turn left them.

    The first `prefix` tokens of a first turn are common to its group, the first `shared` to every episode. Token ids
    and parameters of sampling are left out.
    """

    tokens: tuple[int, ...] = ()
    params: SamplingParams = SamplingParams(max_tokens=0)
    context: int
    reusable: int
    output: int
    prefix: int
    shared: int

    @property
    def presented(self) -> int:
        return self.context


class ModelledSample(Sampled, frozen=True, kw_only=True):
    """`counts` are (version, tokens sampled from it), in order, instead of one entry per token."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    versions: tuple[int, ...] = ()
    stop: SampleStop = SampleStop.STOP_TOKEN
    counts: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        return sum(tokens for _, tokens in self.counts)


@dataclass(slots=True)
class Session:
    """An episode's KV on this rank: the `kv` leading tokens of its path.

    `common` of them lie in blocks that it shares with its group. `version`: of the weights that computed the oldest.
    """

    member: Member
    common: int
    kv: int = 0
    place: Place = "cold"
    version: int = 0

    @property
    def own(self) -> int:
        return max(0, self.kv - self.common)


@dataclass(slots=True)
class Running:
    """A turn in the batch. It began at decode step `begun` of the rank and ends at step `end`.

    `versions`: what it sampled before, `version` is what it samples from since step `since`.
    """

    request: ModelledRequest
    begun: int
    end: int
    version: int
    since: int
    versions: list[tuple[int, int]] = field(default_factory=list)

    def settle(self, step: int) -> None:
        """Book what was sampled up to decode step `step`."""
        if step > self.since:
            self.versions.append((self.version, step - self.since))
            self.since = step


class ModelledEngine:
    """Implements the Engine port for modelled requests.

    `spent` is what the last visit took: seconds by bin. `evicts` says where paused sessions go when room is needed that
    nobody made: to host memory, or nowhere.
    """

    def __init__(self, cluster: Cluster, *, evicts: Literal["warm", "cold"] = "cold") -> None:
        self._costs = cluster.costs
        self._capacity = cluster.kv_tokens
        self._host = cluster.host_tokens
        self._evicts: Literal["warm", "cold"] = evicts
        self.capabilities = EngineCapabilities(
            owns_residency=True,
            capacity_tokens=cluster.kv_tokens,
            max_batch=cluster.max_batch,
            max_context=cluster.kv_tokens,
        )
        self.version = 0
        self.spent: dict[str, float] = {}
        self.hot = 0
        self.warm = 0
        self._steps = 0
        self._queue: deque[ModelledRequest] = deque()
        self._batch: dict[Member, Running] = {}
        self._ends: list[tuple[int, Member]] = []
        self._context = 0
        self._sessions: dict[Member, Session] = {}
        self._paused: dict[Member, None] = {}
        self._kept: dict[Member, None] = {}
        self._prefetches: list[Member] = []
        self._groups: dict[int, int] = {}
        self._group_versions: dict[int, int] = {}
        self._shared_version = -1
        self._partial: dict[Member, list[tuple[int, int]]] = {}
        self._counts = dict.fromkeys(
            ("prefilled", "reprefilled", "reused", "decoded", "preemptions", "demotions", "reloads"), 0
        )

    # -- the port ----------------------------------------------------------------------------------------------------

    def submit(self, requests: list[SampleRequest]) -> None:
        for request in requests:
            assert isinstance(request, ModelledRequest)
            self._queue.append(request)

    def has_work(self) -> bool:
        return bool(self._queue or self._batch or self._prefetches)

    def step(self, *, max_decode_steps: int) -> list[Finished]:
        self.spent = {}
        self._admit()
        self._reload_ahead()
        if self._batch:
            self._decode(min(max_decode_steps, self._next_end() - self._steps))
        return list(self._finish())

    def cancel(self, member: Member) -> None:
        self._queue = deque(request for request in self._queue if request.member != member)
        self._partial.pop(member, None)
        running = self._batch.pop(member, None)
        if running is not None:
            self._leave(running)

    def release(self, member: Member) -> None:
        self._partial.pop(member, None)
        session = self._sessions.pop(member, None)
        if session is not None:
            self._move(session, "cold")

    def demote(self, member: Member, to: Literal["warm", "cold"]) -> None:
        session = self._sessions.get(member)
        if session is None or member in self._batch or session.place in ("cold", to):
            return
        self._counts["demotions"] += session.place == "hot"
        self._move(session, to)

    def prefetch(self, member: Member) -> None:
        session = self._sessions.get(member)
        if session is not None and session.place == "warm":
            self._prefetches.append(member)

    def load_weights(self, *, number: int, weights: Any, kv: KvPolicy) -> PolicyVersion:
        self.version = number
        for running in self._batch.values():
            running.settle(self._steps)
            running.version = number
        if kv == "recompute":
            self._drop_all()
        return PolicyVersion(number=number, digest=str(weights))

    def stats(self) -> EngineStats:
        return EngineStats(
            **self._counts,
            hot_tokens=self.hot,
            warm_tokens=self.warm,
            hot_sessions=len(self._paused) + len(self._batch),
            running=len(self._batch),
        )

    # -- admission ---------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Queued turns in order, while the batch and the KV have room; the first that does not fit waits for it."""
        computes = False
        while self._queue and len(self._batch) < self.capabilities.max_batch:
            request = self._queue[0]
            session = self._sessions.get(request.member)
            if session is None:
                session = self._sessions[request.member] = Session(request.member, request.prefix)
            if not self._make_room(self._needed(session, request), keep=request.member):
                break
            self._queue.popleft()
            computes |= self._enter(session, request)
        if computes:
            self._spend("prefill", self._costs.prefill_base)

    def _needed(self, session: Session, request: ModelledRequest) -> int:
        """Tokens of room that the turn takes when it enters."""
        if session.place == "hot":
            return request.context + 1 - session.kv
        common = request.prefix if self._groups.get(request.member.group) else 0
        return request.context + 1 - common

    def _enter(self, session: Session, request: ModelledRequest) -> bool:
        """Put a turn into the batch. Whether anything had to be computed for it."""
        member = request.member
        if session.place == "warm":
            self._reload(session)
        held = min(session.kv, request.reusable) if session.place == "hot" else self._common(request)
        represented = min(request.reusable, request.context)
        lost = max(0, represented - held)
        fresh = request.context - held - lost
        self._counts["reused"] += min(held, represented)
        self._counts["reprefilled"] += lost
        self._counts["prefilled"] += fresh
        self._compute("recompute", lost, held)
        self._compute("prefill", fresh, held + lost)
        if session.place == "cold" or not held:
            session.version = self.version
        self._hold(session, request.context)
        self._paused.pop(member, None)
        running = Running(request, self._steps, self._steps + request.output, self.version, self._steps)
        running.versions = self._partial.pop(member, [])
        self._batch[member] = running
        heapq.heappush(self._ends, (running.end, member))
        self._context += request.context
        return lost + fresh > 0

    def _common(self, request: ModelledRequest) -> int:
        """Leading tokens whose KV other sessions of this rank have under the served version."""
        group = request.member.group
        if self._groups.get(group) and self._group_versions[group] == self.version:
            return min(request.prefix, request.context)
        if self._shared_version == self.version:
            return request.shared
        self._shared_version = self.version
        return 0

    def _compute(self, bin_name: str, tokens: int, before: int) -> None:
        if tokens:
            self._spend(bin_name, self._costs.prefill(tokens, before) - self._costs.prefill_base)

    def _spend(self, bin_name: str, seconds: float) -> None:
        self.spent[bin_name] = self.spent.get(bin_name, 0.0) + seconds

    # -- decoding ----------------------------------------------------------------------------------------------------

    def _next_end(self) -> int:
        while (running := self._batch.get(self._ends[0][1])) is None or running.end != self._ends[0][0]:
            heapq.heappop(self._ends)
        return self._ends[0][0]

    def _decode(self, steps: int) -> None:
        """`steps` decode steps of the whole batch; fewer if the KV has no room for them."""
        while not self._make_room(len(self._batch)) and len(self._batch) > 1:
            self._preempt()
        batch = len(self._batch)
        if not self._make_room(batch * steps):
            steps = max(1, (self._capacity - self.hot) // batch)
        costs = self._costs
        read = steps * self._context + batch * steps * (steps - 1) // 2
        self._spend("decode", steps * (costs.decode_base + costs.decode_sequence * batch) + costs.decode_context * read)
        self._steps += steps
        self._context += batch * steps
        self.hot += batch * steps
        self._counts["decoded"] += batch * steps

    def _preempt(self) -> None:
        """The newest turn goes back to the head of the queue, and its KV where evicted KV goes."""
        member = next(reversed(self._batch))
        running = self._batch.pop(member)
        done = self._steps - running.begun
        self._leave(running)
        self._partial[member] = running.versions
        request = running.request
        length = request.context + done
        self._queue.appendleft(
            msgspec.structs.replace(request, context=length, reusable=length, output=request.output - done)
        )
        self._counts["preemptions"] += 1
        self._move(self._sessions[member], self._evicts)

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
        running.settle(self._steps)
        length = running.request.context + self._steps - running.begun
        self._context -= length
        session = self._sessions[running.request.member]
        session.kv = length
        self._paused[session.member] = None

    # -- residency ---------------------------------------------------------------------------------------------------

    def _make_room(self, tokens: int, *, keep: Member | None = None) -> bool:
        """Evict paused sessions, the longest pause first, until `tokens` fit."""
        while self.hot + tokens > self._capacity:
            victim = next((member for member in self._paused if member != keep), None)
            if victim is None:
                return False
            self.demote(victim, self._evicts)
        return True

    def _hold(self, session: Session, kv: int) -> None:
        """`session` is hot with `kv` tokens."""
        group = session.member.group
        if session.place == "hot":
            self.hot -= session.own
        else:
            members = self._groups.get(group, 0)
            if members == 0:
                self.hot += session.common
                self._group_versions[group] = self.version
            self._groups[group] = members + 1
        session.kv, session.place = kv, "hot"
        self.hot += session.own

    def _move(self, session: Session, to: Literal["warm", "cold"]) -> None:
        """Out of the device's memory, or out of the host's."""
        group = session.member.group
        if session.place == "hot":
            self._paused.pop(session.member, None)
            self.hot -= session.own
            self._groups[group] -= 1
            if self._groups[group] == 0:
                del self._groups[group], self._group_versions[group]
                self.hot -= session.common
        elif session.place == "warm":
            del self._kept[session.member]
            self.warm -= session.kv
        session.place = "cold"
        if to == "warm" and session.kv <= self._host:
            while self.warm + session.kv > self._host:
                self._move(self._sessions[next(iter(self._kept))], "cold")
            session.place = "warm"
            self._kept[session.member] = None
            self.warm += session.kv
        if session.place == "cold":
            session.kv = 0

    def _reload(self, session: Session) -> None:
        kv = session.kv
        self._spend("reload", self._costs.reload(kv))
        self._counts["reloads"] += 1
        del self._kept[session.member]
        self.warm -= kv
        session.place = "cold"
        self._hold(session, kv)
        self._paused[session.member] = None

    def _reload_ahead(self) -> None:
        """What was asked for by `prefetch`, where there is room without evicting anybody."""
        wanted, self._prefetches = self._prefetches, []
        for member in wanted:
            session = self._sessions.get(member)
            if session is not None and session.place == "warm" and self.hot + session.kv <= self._capacity:
                self._reload(session)

    def _drop_all(self) -> None:
        """New weights without old KV: every running turn computes its context again, paused sessions are cold."""
        for member in reversed(list(self._batch)):
            running = self._batch.pop(member)
            done = self._steps - running.begun
            self._leave(running)
            self._partial[member] = running.versions
            length = running.request.context + done
            self._queue.appendleft(
                msgspec.structs.replace(
                    running.request, context=length, reusable=length, output=running.request.output - done
                )
            )
        for session in self._sessions.values():
            if session.place != "cold":
                self._move(session, "cold")
        self._ends.clear()
