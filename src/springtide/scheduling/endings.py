"""The ends of slots, each recorded once: in sync those of a step with its `Train` command, else when they happen."""

from collections.abc import Sequence

from springtide.ports.journal import EndRecord


class Endings:
    """`recorded`: what is to be journalled with the commands of the last event."""

    def __init__(self, *, sync: bool) -> None:
        self._sync = sync
        self._open: list[EndRecord] = []
        self.recorded: list[EndRecord] = []

    def add(self, records: Sequence[EndRecord], *, trained: bool) -> None:
        if self._sync and not trained:
            self._open += records
        else:
            self.recorded += records

    def settle(self) -> None:
        """The step is full."""
        self.recorded += self._open
        self._open = []

    def forget(self) -> None:
        """The open step starts again."""
        self._open = []
