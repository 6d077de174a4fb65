"""On which rank an episode lives. Pure: the same episodes in the same order give the same ranks."""

import heapq
from collections.abc import Iterable

from springtide.core.member import Member


class GroupAffinity:
    """Members of a group share a prompt, so they go where the last of them went, unless that rank is too busy: with
    `slack` times the mean number of episodes, and `together` more. Then, and for a new group, the least busy rank.
    `together`, the usual size of a group, is what a rank may have above the others for holding a group whole.

    Any number of ranks costs the same: the least busy one is on top of a heap that is cleaned as it is read.
    """

    def __init__(self, ranks: int, *, slack: float = 1.25, together: int = 8) -> None:
        self.loads = [0] * ranks
        self._slack = slack
        self._together = together
        self._total = 0
        self._heap = [(0, rank) for rank in range(ranks)]
        self._homes: dict[Member, int] = {}
        self._groups: dict[tuple[str, int], tuple[int, int]] = {}
        self.active = dict.fromkeys(range(ranks))

    def restrict(self, active: Iterable[int]) -> None:
        """Only these ranks get anybody from now on."""
        self.active = dict.fromkeys(active)
        self._heap = [(self.loads[rank], rank) for rank in self.active]
        heapq.heapify(self._heap)

    def place(self, member: Member) -> int:
        """The rank where `member` lives from now on."""
        group = (member.purpose.value, member.group)
        rank, members = self._groups.get(group, (-1, 0))
        most = self._slack * self._total / len(self.active) + self._together
        if rank not in self.active or self.loads[rank] >= most:
            rank = self._least_busy()
        self._homes[member] = rank
        self._groups[group] = rank, members + 1
        self._change(rank, 1)
        return rank

    def forget(self, member: Member) -> None:
        """The episode is over."""
        self._change(self._homes.pop(member), -1)
        group = (member.purpose.value, member.group)
        rank, members = self._groups[group]
        if members == 1:
            del self._groups[group]
        else:
            self._groups[group] = rank, members - 1

    def _change(self, rank: int, by: int) -> None:
        self.loads[rank] += by
        self._total += by
        if rank in self.active:
            heapq.heappush(self._heap, (self.loads[rank], rank))

    def _least_busy(self) -> int:
        while self._heap[0][0] != self.loads[self._heap[0][1]]:
            heapq.heappop(self._heap)
        return self._heap[0][1]
