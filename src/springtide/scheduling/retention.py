"""Policies of retention: who leaves the device first, and who may stay although others wait. Pure.

Each is a published rule, or ours; none but the oracle knows when a tool will return. What all have in common is in
`residency.py`: room is made only when it is needed, and ready turns enter in one order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple, Protocol

from springtide.core.errors import UsageError
from springtide.core.member import Member
from springtide.scheduling.costs import CurrentCosts
from springtide.scheduling.priority import Precedence
from springtide.scheduling.retention_names import check, parts

Place = Literal["hot", "warm", "cold"]
SLACK = 0.05
"""Share of the capacity: without it sessions that grow push each other out. 0.05 to 0.1 make no clear difference."""


@dataclass(slots=True)
class Session:
    """An episode on this rank. `common` leading tokens are its group's prompt; `kv` tokens have KV, if not cold.

    `since`: when it paused. `length`: tokens that its turn presents. `order`: who leaves first, as the policy said.
    `precedence`: of its ready turn.
    """

    member: Member
    common: int
    precedence: Precedence
    kv: int = 0
    place: Place = "cold"
    state: Literal["ready", "running", "paused"] = "ready"
    turn: int = 0
    length: int = 0
    since: float = 0.0
    order: float = 0.0

    @property
    def own(self) -> int:
        return max(0, self.kv - self.common)

    @property
    def group(self) -> tuple[str, int]:
        return self.member.purpose.value, self.member.group


class Load(NamedTuple):
    """Turns in the engine, the mean of their contexts in tokens, and the tokens that host memory has room for."""

    running: int
    context: float
    host_free: int

    @property
    def spills(self) -> bool:
        """Who has to leave the device for want of room loses nothing."""
        return self.host_free > self.context


class Hold(NamedTuple):
    """Until when (seconds) a paused session is guarded, and its place among those that leave: least first."""

    until: float
    order: float


class RetentionPolicy(Protocol):
    """`cap` is the share of the capacity that paused sessions may have."""

    cap: float

    def room(self, load: Load) -> float:
        """The share of the capacity up to which sessions without KV on the device are let in."""
        ...

    def hold(self, session: Session, load: Load, now: float) -> Hold:
        """A session pauses on the device."""
        ...

    def worth(self, session: Session, now: float) -> float:
        """Its place in host memory: least leaves first, and nobody leaves for one that is worth less."""
        ...

    def left(self, session: Session, now: float) -> None:
        """It no longer pauses on the device."""
        ...

    def returned(self, session: Session, now: float) -> None:
        """Its pause is over, wherever its KV is."""
        ...

    def demand(self, now: float) -> float:
        """Tokens of paused sessions that turns without KV here may not have, besides those of guarded ones."""
        ...


class Recency:
    """What policies have in common: the longest pause leaves first, from the device and from host memory.

    Alone (`lru-ordered`) it is LRU with turns in our order: nobody is guarded.
    """

    cap: float = 1.0

    def room(self, load: Load) -> float:
        return 1.0

    def hold(self, session: Session, load: Load, now: float) -> Hold:
        return Hold(now, now)

    def worth(self, session: Session, now: float) -> float:
        return session.since

    def left(self, session: Session, now: float) -> None:
        pass

    def returned(self, session: Session, now: float) -> None:
        pass

    def demand(self, now: float) -> float:
        return 0.0


class Cap(Recency):
    """Paused sessions have at most a share of the capacity, and keep it: a static cap, tuned by sweep."""

    def __init__(self, share: float) -> None:
        self.cap = share

    def hold(self, session: Session, load: Load, now: float) -> Hold:
        return Hold(inf, now)


class Ttl(Recency):
    """KV is pinned for so many seconds of the pause: Continuum (arXiv 2511.02230), with one constant instead of a
    distribution per tool.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def hold(self, session: Session, load: Load, now: float) -> Hold:
        return Hold(now + self._seconds, now)


class Decay(Recency):
    """A paused session counts with 2^(-pause / half-life) of its tokens where it is decided who is let in, and the
    shortest leaves first: ThunderAgent (arXiv 2602.13692).
    """

    def __init__(self, half_life: float) -> None:
        self._half_life = half_life
        self._mass = 0.0
        self._at = 0.0

    def hold(self, session: Session, load: Load, now: float) -> Hold:
        self._mass = self.demand(now) + session.own
        self._at = now
        return Hold(now, session.kv)

    def left(self, session: Session, now: float) -> None:
        self._mass = self.demand(now) - session.own * self._weight(now - session.since)
        self._at = now

    def demand(self, now: float) -> float:
        return max(0.0, self._mass * self._weight(now - self._at))

    def _weight(self, seconds: float) -> float:
        return float(2.0 ** (-seconds / self._half_life))


class MinWaste(Recency):
    """Preserve, swap or discard, whichever wastes least memory for the expected pause (a moving average):
    InferCept (arXiv 2402.01869). Token-seconds: preserving wastes the pause times its tokens; discarding the recompute
    times its tokens and those of all that wait for it; swapping, which overlaps with decoding here, the reload times
    its tokens.
    """

    def __init__(self, costs: CurrentCosts, *, weight: float = 0.05) -> None:
        self._costs = costs
        self._weight = weight
        self._pause = 0.0

    def hold(self, session: Session, load: Load, now: float) -> Hold:
        if load.host_free >= session.kv:
            waste = self._costs().reload(session.kv) * session.kv
        else:
            waste = self._costs().recompute(session.kv) * (session.kv + load.running * load.context)
        return Hold(inf if self._pause * session.kv <= waste else now, now)

    def returned(self, session: Session, now: float) -> None:
        self._pause += self._weight * (now - session.since - self._pause)


class ResidencyCap(Recency):
    """Sessions without KV here are let in while all that is resident, pauses included, is below a share of the
    capacity; those that are in go on: MISA-T's cap by demand weighted with residency (arXiv 2608.11152).
    """

    def __init__(self, share: float) -> None:
        self._share = share

    def room(self, load: Load) -> float:
        return self._share

    def hold(self, session: Session, load: Load, now: float) -> Hold:
        return Hold(inf, now)


Pauses = Callable[[Member, int], float]
"""Seconds of the pause after a member's turn; infinite after its last."""


class BreakEven(Recency):
    """Ours: a paused session is guarded until holding its KV has cost as much as getting it back will, which is at most
    twice what knowing the pause would have cost (ski rental). What saves least per token leaves host memory first.

    Holding c tokens costs mu c GPU seconds per second: the share of the rank's throughput that one more running
    sequence of that size would add, mu c = d0 / (b (d0 + (d1 + d2 c) b)) for a batch of b (`ServiceCosts`). Getting
    them back costs a recompute; where host memory has room for them, `exposed` of a reload: the share of it in which
    nothing can be decoded. Where outgrowing the device costs a recompute, a part of it is left to growth.
    """

    def __init__(self, costs: CurrentCosts, *, exposed: float = 0.0) -> None:
        self._costs = costs
        self._exposed = exposed

    def room(self, load: Load) -> float:
        return 1.0 if load.spills else 1.0 - SLACK

    def hold(self, session: Session, load: Load, now: float) -> Hold:
        rate = self.price(load) * session.kv
        until = now + self.resume(session.kv, load) / rate
        return Hold(until, until)

    def worth(self, session: Session, now: float) -> float:
        costs, kv = self._costs(), session.kv
        return (costs.recompute(kv) - costs.reload(kv)) / max(1, kv)

    def price(self, load: Load) -> float:
        """GPU seconds that a token-second of KV is worth while KV is what limits the batch."""
        costs, batch, context = self._costs(), max(1, load.running), max(1.0, load.context)
        step = costs.decode_base + (costs.decode_sequence + costs.decode_context * context) * batch
        return costs.decode_base / (batch * step) / context

    def resume(self, kv: int, load: Load) -> float:
        """GPU seconds that it takes a session of `kv` tokens to come back once it has left the device."""
        costs = self._costs()
        return self._exposed * costs.reload(kv) if load.host_free >= kv else costs.recompute(kv)


class Oracle(BreakEven):
    """Knows how long each pause will be: guards it if holding is cheaper than getting it back, and lets go first of
    what returns last (Belady). Optimal for one session at one price, not for the rank as a whole.
    """

    def __init__(self, costs: CurrentCosts, pauses: Pauses) -> None:
        super().__init__(costs)
        self._pauses = pauses

    def hold(self, session: Session, load: Load, now: float) -> Hold:
        pause = self._pauses(session.member, session.turn)
        cheaper = self.price(load) * session.kv * pause <= self.resume(session.kv, load)
        return Hold(inf if cheaper else now, -(now + pause))


def policy(text: str, costs: CurrentCosts, pauses: Pauses | None = None) -> RetentionPolicy | None:
    """One rank's own; None for the engine's own eviction on demand. UsageError for another name.

    `pauses`: what the oracle knows; without, there is none.
    """
    try:
        check(text)
    except ValueError as error:
        raise UsageError(f"retention: {error}.") from None
    name, number = parts(text)
    made: dict[str, Callable[[float], RetentionPolicy]] = {
        "lru-ordered": lambda _: Recency(),
        "cap": Cap,
        "ttl": Ttl,
        "decay": Decay,
        "min-waste": lambda _: MinWaste(costs),
        "residency": ResidencyCap,
        "break-even": lambda _: BreakEven(costs),
    }
    if pauses is not None:
        made["oracle"] = lambda _: Oracle(costs, pauses)
    return None if name == "lru" else made[name](number or 0.0)
