"""What idle ranks wait for."""

from collections.abc import Callable

from springtide.telemetry.ledger import SharedWait


class Waits:
    """What idle ranks wait for: `pausing` those where episodes live, `empty` the others."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.pausing = SharedWait("environment", now)
        self.empty = SharedWait("start", now)

    def change(self, reason: str, *, blamed: str) -> None:
        """Empty ranks wait for `reason`; all of them for `blamed`, if somebody holds everything up."""
        self.pausing.change(blamed or "environment")
        self.empty.change(blamed or reason)
