"""Trajectories of groups that are not consumed yet: finished and journalled."""

from springtide.core.group import Group
from springtide.core.trajectory import Trajectory


class Stash:
    """What a train step is made of."""

    def __init__(self) -> None:
        self._trajectories: dict[tuple[int, int], Trajectory] = {}
        self._issued: dict[int, tuple[int, int]] = {}

    def issue(self, group: int, *, base_version: int, size: int) -> None:
        self._issued[group] = (base_version, size)

    def put(self, trajectory: Trajectory) -> None:
        """The slot's newest trajectory; an older attempt's is forgotten."""
        member = trajectory.member
        if member.group in self._issued:
            self._trajectories[member.group, member.slot] = trajectory

    def take(self, group: int) -> Group:
        """What `peek` gives; the stash holds it no longer."""
        whole = self.peek(group)
        self.drop(group)
        return whole

    def peek(self, group: int) -> Group:
        """All members in slot order, invalid ones included."""
        base_version, size = self._issued[group]
        members = tuple(self._trajectories[group, slot] for slot in range(size))
        return Group(id=group, base_version=base_version, members=members)

    def drop(self, group: int) -> None:
        """The group has ended."""
        _, size = self._issued.pop(group, (0, 0))
        for slot in range(size):
            self._trajectories.pop((group, slot), None)
