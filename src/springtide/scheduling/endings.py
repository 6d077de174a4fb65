"""The ends of slots, each recorded once: in sync those of a step with its `Train` command, else when they happen."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from springtide.ports.journal import EndRecord


@dataclass
class Endings:
    """`recorded`: what is to be journalled with the commands of the last event; `open`: with the next train step."""

    sync: bool
    open: list[EndRecord] = field(default_factory=list)
    recorded: list[EndRecord] = field(default_factory=list, repr=False)

    def add(self, records: Sequence[EndRecord], *, trained: bool) -> None:
        if self.sync and not trained:
            self.open += records
        else:
            self.recorded += records

    def settle(self) -> None:
        """The step is full."""
        self.recorded += self.open
        self.open = []

    def forget(self) -> None:
        """The open step starts again."""
        self.open = []
