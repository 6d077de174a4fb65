"""Episodes of one task that share a baseline."""

from enum import StrEnum

import msgspec

from springtide.core.trajectory import Trajectory


class End(StrEnum):
    """Where each issued (group, slot) ends, exactly once."""

    TRAINED = "trained"
    """It took part in an applied optimizer step."""
    FILTERED = "filtered"
    """Its group carried no signal (all rewards equal) and dynamic sampling set it aside."""
    EXPIRED = "expired"
    """Its group ran out of deadlines and retries; the prompt was issued again."""
    INVALID = "invalid"
    """Every attempt failed for a cause outside the agent's reach."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A complete group, in slot order, as a train step reads it. Invalid members are present and have no vote."""

    id: int
    base_version: int
    members: tuple[Trajectory, ...]

    @property
    def valid_members(self) -> tuple[Trajectory, ...]:
        return tuple(member for member in self.members if member.valid)
