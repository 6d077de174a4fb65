"""A journal in memory that survives the death of the process that writes it."""

from springtide.core.errors import StorageFullError
from springtide.core.trajectory import Trajectory
from springtide.ports.journal import EndRecord, Entry


class Disk:
    """What is durable. One per run; processes come and go."""

    def __init__(self):
        self.entries: list[Entry] = []
        self.trajectories: dict[tuple[int, int], Trajectory] = {}
        self.evaluations: list[Trajectory] = []
        self.ends: dict[tuple[int, int], EndRecord] = {}
        self.checkpoints: dict[int, tuple[dict, object]] = {}


class FakeJournal:
    """Implements the Journal port. After `die` nothing can be written: finally-blocks of a dead process do not run.

    `room`: appends that there is still space for.
    """

    def __init__(self, disk: Disk, *, room: int | None = None):
        self.disk = disk
        self.alive = True
        self.room = room

    def append(self, *, entries, trajectories=(), ends=()):
        assert self.alive, "a dead process wrote to its journal"
        if self.room is not None:
            if not self.room:
                raise StorageFullError("The disk is full; free some space and resume.")
            self.room -= 1
        for record in ends:
            assert (record.group, record.slot) not in self.disk.ends, "ended twice"
        self.disk.entries += entries
        for trajectory in trajectories:
            member = trajectory.member
            if member.purpose == "train":
                self.disk.trajectories[member.group, member.slot] = trajectory
            else:
                self.disk.evaluations.append(trajectory)
        for record in ends:
            self.disk.ends[record.group, record.slot] = record

    def entries(self):
        return iter(list(self.disk.entries))

    def trajectory(self, group, slot):
        return self.disk.trajectories[group, slot]

    def ends(self):
        return iter(self.disk.ends.values())

    def close(self):
        self.alive = False
