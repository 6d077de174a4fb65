"""A baseline: a trajectory stays on the version that it began with, and groups of ranks serve the versions of a window.

DORA's rule (arXiv 2604.26256): new trajectories begin on the newest version; each version that has trajectories has at
least one rank, and of n ranks as many as round(n * its trajectories / all trajectories); KV moves with a trajectory
between ranks of its version. Where the description is silent, this is favourable: shares are looked at whenever a
trajectory begins or ends, not at timers; KV moves through host memory without waiting for its copy out; what runs or is
queued on a rank that takes another version ends there on its own, as if it had been moved at no cost; only a rank that
takes new weights stops for them.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from springtide.core.member import Member
from springtide.core.version import PolicyVersion
from springtide.ports.clock import Clock
from springtide.ports.engine import KvPolicy
from springtide.ports.executor import Executor
from springtide.runtime.dispatch import Dispatch
from springtide.runtime.parting import Parting
from springtide.scheduling.placement import GroupAffinity
from springtide.simulation.cluster import Cluster
from springtide.simulation.engine import ModelledEngine
from springtide.telemetry.ledger import Ledger


class VersionedEngine(ModelledEngine):
    """Samples each member's tokens from the member's own version, of `own`. No KV is ever too old for it."""

    def __init__(
        self, cluster: Cluster, *, now: Callable[[], float], evicts: Literal["warm", "cold"] = "cold", gap: int = 1
    ) -> None:
        super().__init__(cluster, now=now, evicts=evicts, gap=sys.maxsize)
        self.own: Mapping[Member, int] = {}

    def load_weights(self, *, number: int, weights: Any, kv: KvPolicy) -> PolicyVersion:
        self.version = number
        return PolicyVersion(number=number, digest=str(weights))

    def _samples_from(self, member: Member) -> int:
        return self.own[member]

    def _hands_over(self) -> bool:
        return True


class VersionAffinity(GroupAffinity):
    """Like its base, among the ranks that serve the member's version. `serves`: of each rank; `own`: of each member."""

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks)
        self.serves = [0] * ranks
        self.own: dict[Member, int] = {}
        self._shared: dict[tuple[str, int, int], int] = {}

    def place(self, member: Member) -> int:
        version = self.own[member]
        ranks = [rank for rank, served in enumerate(self.serves) if served == version]
        mean = sum(self.loads[rank] for rank in ranks) / len(ranks)
        group = (member.purpose.value, member.group, version)
        rank = self._shared.get(group, -1)
        if rank not in ranks or self.loads[rank] >= self._slack * mean + self._together:
            rank = min(ranks, key=self.loads.__getitem__)
        self._shared[group] = self._homes[member] = rank
        self.loads[rank] += 1
        return rank

    def forget(self, member: Member) -> None:
        self.loads[self._homes.pop(member)] -= 1

    def due(self, newest: int) -> list[int]:
        """Ranks that are to serve the newest version from now on, by the trajectories that each version has."""
        live = Counter(self.own.values())
        ranks = Counter(self.serves)
        total = max(1, live.total())
        keep = {version: max(1, round(len(self.serves) * live[version] / total)) for version in live}
        wanted = max(1, len(self.serves) - sum(keep[version] for version in live if version != newest))
        found: list[int] = []
        while ranks[newest] < wanted:
            spare = {
                version: count - keep.get(version, 0)
                for version, count in ranks.items()
                if version != newest and count > min(1, live[version])
            }
            if not spare:
                break
            version = max(spare, key=lambda version: (spare[version], -version))
            mine = [rank for rank, served in enumerate(self.serves) if served == version and rank not in found]
            found.append(min(mine, key=self.loads.__getitem__))
            ranks[version] -= 1
            ranks[newest] += 1
        return found


class VersionedDispatch(Dispatch):
    """Each rank serves a version. Needs a rank per version that can be live: K + 1."""

    def __init__(
        self,
        *,
        engines: Sequence[VersionedEngine],
        executor: Executor,
        clock: Clock,
        ledger: Ledger,
        decode_steps: int,
    ) -> None:
        super().__init__(
            engines=engines,
            executor=executor,
            clock=clock,
            ledger=ledger,
            lockstep=False,
            decode_steps=decode_steps,
        )
        self._engines = engines
        self._placement = self._affinity = VersionAffinity(len(engines))
        for engine in engines:
            engine.own = self._affinity.own
        self._newest: tuple[PolicyVersion, Any] = (PolicyVersion(0, "0"), None)
        self._loads: set[asyncio.Future[PolicyVersion]] = set()

    def open(self, member: Member) -> None:
        self._affinity.own[member] = self._newest[0].number
        super().open(member)
        self._share()

    def close(self, member: Member) -> None:
        super().close(member)
        self._affinity.own.pop(member, None)
        self._share()

    async def load(self, *, expected: PolicyVersion, weights: Any, kv: KvPolicy) -> PolicyVersion:
        """On the ranks that are to serve it now; others follow as older trajectories end."""
        self._newest = (expected, weights)
        self._share()
        if self._loads:
            await asyncio.wait(self._loads)
        return expected

    def _share(self) -> None:
        version, weights = self._newest
        for number in self._affinity.due(version.number):
            self._affinity.serves[number] = version.number
            loading = asyncio.ensure_future(self._ranks[number].load(expected=version, weights=weights, kv="keep"))
            self._loads.add(loading)
            loading.add_done_callback(self._loads.discard)

    def _home(self, member: Member) -> int:
        """A rank of the member's version; its KV comes along."""
        before = self._homes[member]
        if self._affinity.serves[before] != self._affinity.own[member]:
            self._unsettle(member)
            self._settle(Parting(member))
            handed = self._engines[before].hand_over(member)
            if handed is not None:
                self._engines[self._homes[member]].take_over(member, handed)
        return self._homes[member]
