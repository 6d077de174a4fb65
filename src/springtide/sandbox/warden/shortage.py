"""What a lack of memory costs a control group, and whose lack it was.

The kernel counts every process that *any* out-of-memory killer took from a group, also that of the host or of a
container around it, which take a box's commands first. Such a kill is no failure of the agent. So a kill is laid at the
group's own limit only if that limit was met: version 2 counts how often it left an allocation no way out; version 1
keeps the peak of the usage alone, which reaches the limit also where the kernel could still make room.
"""

from __future__ import annotations

import os
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap

_SLACK_PAGES = 64
"""The kernel charges at most this many pages at once: closer to the limit it may find that they do not fit."""


class Shortage:
    """Processes killed; times that the own limit left an allocation no way out (`cornered`), and that it was met at all
    (`met`). Version 1 knows of the latter two only whether, not how often. Totals, or between two moments."""

    __slots__ = ("cornered", "kills", "met")

    def __init__(self, kills: int = 0, cornered: int = 0, met: int = 0) -> None:
        self.kills, self.cornered, self.met = kills, cornered, met

    def since(self, before: Shortage) -> Shortage:
        return Shortage(self.kills - before.kills, self.cornered - before.cornered, self.met - before.met)

    @property
    def own(self) -> bool:
        """Something was killed at the group's own limit."""
        return self.kills > 0 and self.cornered > 0

    @property
    def foreign(self) -> bool:
        """Something was killed though the group was within its limit."""
        return self.kills > 0 and self.cornered == 0


class MemoryCounters:
    """Open counters of a group. `kills` is -1 without any, and in version 2 has all there is to know.

    Version 1 also has its `limit` and the `peaks` of its usage, of which each can be started afresh. `mark` keeps what
    the counters said when a box, or a command in it, began: memory that all share who ask for what came since.
    """

    MARK = Struct("<3q")

    def __init__(
        self, kills: int, limit: int = -1, peaks: tuple[int, ...] = (), mark: mmap | bytearray | None = None
    ) -> None:
        self._kills, self._limit, self._peaks = kills, limit, peaks
        self._mark = bytearray(self.MARK.size) if mark is None else mark

    def begin(self) -> None:
        """From now on `since_begin` tells."""
        for peak in self._peaks:
            os.pwrite(peak, b"0", 0)
        now = Shortage(field(self._kills, b"oom_kill")) if self._peaks else self._total()
        self.MARK.pack_into(self._mark, 0, now.kills, now.cornered, now.met)

    def since_begin(self) -> Shortage:
        return self._total().since(Shortage(*self.MARK.unpack_from(self._mark)))

    def _total(self) -> Shortage:
        kills = field(self._kills, b"oom_kill")
        if self._limit < 0:
            return Shortage(kills, field(self._kills, b"oom"), field(self._kills, b"max"))
        if not self._peaks:
            return Shortage(kills, kills, kills)  # Nothing tells whose limit it was; then it was the group's own.
        nearly = _number(self._limit) - _SLACK_PAGES * os.sysconf("SC_PAGE_SIZE")
        met = int(max(map(_number, self._peaks)) > nearly)
        return Shortage(kills, met, met)

    def close(self) -> None:
        for descriptor in (self._kills, self._limit, *self._peaks):
            if descriptor >= 0:
                os.close(descriptor)


def field(descriptor: int, name: bytes) -> int:
    """The number after `name` at the start of a line; 0 without a counter."""
    if descriptor < 0:
        return 0
    for line in os.pread(descriptor, 4096, 0).splitlines():
        key, _, value = line.partition(b" ")
        if key == name:
            return int(value)
    return 0


def _number(descriptor: int) -> int:
    return int(os.pread(descriptor, 64, 0))
