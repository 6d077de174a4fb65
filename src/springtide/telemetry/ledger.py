"""The waste ledger: every wall second of a lane in a named bin.

A lane is always in exactly one bin. Bins nest; time goes to the innermost. What a lane waits for between pieces of
work is declared by whoever owns the wait (`wait_for`); undeclared time lands in `unattributed`.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from springtide.telemetry.names import ledger_name

UNATTRIBUTED = "unattributed"


class SharedWait:
    """What any number of idle lanes wait for together: it changes for all of them at once, at the cost of one."""

    def __init__(self, reason: str, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._reason = reason
        self._since = now()
        self._totals: dict[str, float] = {}

    def change(self, reason: str) -> None:
        """From now on they wait for `reason`."""
        with self._lock:
            if reason != self._reason:
                self._settle()
                self._reason = reason

    def totals(self) -> dict[str, float]:
        """Seconds per reason since this was made."""
        with self._lock:
            self._settle()
            return dict(self._totals)

    def _settle(self) -> None:
        now = self._now()
        self._totals[self._reason] = self._totals.get(self._reason, 0.0) + now - self._since
        self._since = now


class LaneLedger:
    """One lane's bins. Seconds per bin sum to the lane's lifetime, by construction."""

    def __init__(self, lane: str, now: Callable[[], float]) -> None:
        self.lane = lane
        self._now = now
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = {}
        self._stack: list[str | SharedWait] = [UNATTRIBUTED]
        self._settled = now()
        self._read: dict[str, float] = {}

    def _settle(self) -> None:
        now = self._now()
        current = self._stack[-1]
        if isinstance(current, SharedWait):
            totals = current.totals()
            for reason, seconds in totals.items():
                if seconds > self._read.get(reason, 0.0):
                    self._book(reason, seconds - self._read.get(reason, 0.0))
            self._read = totals
        else:
            self._book(current, now - self._settled)
        self._settled = now

    def _book(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def _resume(self) -> None:
        """The bottom of the stack counts again: of a shared wait, what comes from now on."""
        current = self._stack[-1]
        if isinstance(current, SharedWait):
            self._read = current.totals()

    def wait_for(self, reason: str | SharedWait) -> None:
        """From now on, time outside of any bin is booked as `reason`."""
        with self._lock:
            if self._stack[0] is not reason and self._stack[0] != reason:
                if len(self._stack) == 1:
                    self._settle()
                self._stack[0] = reason
                if len(self._stack) == 1:
                    self._resume()

    @contextmanager
    def bin(self, name: str) -> Iterator[None]:
        """Book the body's time under `name`, less what nested bins take."""
        with self._lock:
            self._settle()
            self._stack.append(name)
        try:
            yield
        finally:
            with self._lock:
                self._settle()
                self._stack.pop()
                self._resume()

    def split(self, name: str, parts: Mapping[str, float]) -> None:
        """What was booked under `name` was really spent on `parts`, bin by bin."""
        with self._lock:
            for part, seconds in parts.items():
                self._book(name, -seconds)
                self._book(part, seconds)

    def seconds(self) -> dict[str, float]:
        """Seconds per bin up to now."""
        with self._lock:
            self._settle()
            return dict(self._seconds)


class Ledger:
    """The ledgers of all lanes, made on first use. Any thread may ask."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._lanes: dict[str, LaneLedger] = {}

    def lane(self, name: str) -> LaneLedger:
        with self._lock:
            if name not in self._lanes:
                self._lanes[name] = LaneLedger(name, self._now)
            return self._lanes[name]

    def _all(self) -> list[LaneLedger]:
        with self._lock:
            return list(self._lanes.values())

    def seconds(self) -> dict[str, dict[str, float]]:
        """Seconds per lane and bin up to now."""
        return {lane.lane: lane.seconds() for lane in self._all()}

    def unattributed_share(self) -> dict[str, float]:
        """Share of each lane's lifetime that nobody named."""
        shares = {}
        for name, bins in self.seconds().items():
            total = sum(bins.values())
            shares[name] = bins.get(UNATTRIBUTED, 0.0) / total if total > 0 else 0.0
        return shares

    def metrics(self) -> dict[str, float]:
        """All bins and unattributed shares by canonical name."""
        named = {
            ledger_name(lane, bin_name): seconds
            for lane, bins in self.seconds().items()
            for bin_name, seconds in bins.items()
        }
        shares = {f"ledger/{lane}/unattributed_share": share for lane, share in self.unattributed_share().items()}
        return named | shares
