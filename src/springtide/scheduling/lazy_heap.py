"""Members by a number, least first; whoever changes or leaves is forgotten when the heap comes to it."""

import heapq

from springtide.core.member import Member

SLACK = 64


class LazyHeap:
    """Every operation is O(log n), amortised; ties are broken by member."""

    def __init__(self) -> None:
        self._keys: dict[Member, float] = {}
        self._heap: list[tuple[float, Member]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, member: Member) -> bool:
        return member in self._keys

    def push(self, member: Member, key: float) -> None:
        """Add a member or change its number."""
        self._keys[member] = key
        heapq.heappush(self._heap, (key, member))
        if len(self._heap) > 2 * len(self._keys) + SLACK:
            self._heap = [(key, member) for member, key in self._keys.items()]
            heapq.heapify(self._heap)

    def discard(self, member: Member) -> None:
        self._keys.pop(member, None)

    def first(self) -> tuple[float, Member] | None:
        while self._heap:
            key, member = self._heap[0]
            if self._keys.get(member) == key:
                return key, member
            heapq.heappop(self._heap)
        return None
