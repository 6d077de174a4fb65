"""Members by a key, least first; whoever changes or leaves is forgotten when the heap comes to it."""

import heapq
from typing import Generic, TypeVar

from springtide.core.member import Member
from springtide.scheduling.priority import Precedence

Key = TypeVar("Key", float, Precedence)

SLACK = 64


class LazyHeap(Generic[Key]):
    """Every operation is O(log n), amortised; ties are broken by member."""

    def __init__(self) -> None:
        self._keys: dict[Member, Key] = {}
        self._heap: list[tuple[Key, Member]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, member: Member) -> bool:
        return member in self._keys

    def push(self, member: Member, key: Key) -> None:
        """Add a member or change its key."""
        self._keys[member] = key
        heapq.heappush(self._heap, (key, member))
        if len(self._heap) > 2 * len(self._keys) + SLACK:
            self._heap = [(key, member) for member, key in self._keys.items()]
            heapq.heapify(self._heap)

    def discard(self, member: Member) -> None:
        self._keys.pop(member, None)

    def last(self, *, but: Member) -> Member | None:
        """Of all others than `but`, the one with the greatest key. O(n)."""
        others = [(key, member) for member, key in self._keys.items() if member != but]
        return max(others)[1] if others else None

    def first(self) -> tuple[Key, Member] | None:
        while self._heap:
            key, member = self._heap[0]
            if self._keys.get(member) == key:
                return key, member
            heapq.heappop(self._heap)
        return None
