"""When to give a run up: groups expire one after the other and none is complete between them."""

from dataclasses import dataclass

HOPELESS_BATCHES = 3
"""Batches of groups that may expire in a row, with none complete between."""


@dataclass
class Patience:
    """`batch`: groups per step. `reason`: of the last failure since something worked."""

    batch: int
    expired: int = 0
    reason: str = ""

    @property
    def exhausted(self) -> bool:
        return self.expired >= HOPELESS_BATCHES * self.batch

    def failed(self, reason: str) -> None:
        self.reason = reason or self.reason

    def group_expired(self) -> None:
        self.expired += 1

    def worked(self) -> None:
        self.expired, self.reason = 0, ""
