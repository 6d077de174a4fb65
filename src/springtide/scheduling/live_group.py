"""An issued group that has not ended: the state of its slots."""

from dataclasses import dataclass, field

from springtide.core.group import End


@dataclass
class Slot:
    """`done` once an attempt was valid or the attempts ran out; `reward` is None where the slot is invalid."""

    attempt: int = 1
    running: bool = False
    done: bool = False
    reward: float | None = None
    reason: str = ""
    tokens: int = 0


@dataclass
class LiveGroup:
    """Mutable, owned by the scheduler. `judged`: it was decided to keep this complete group."""

    id: int
    task: int
    base_version: int
    reissue: int
    slots: list[Slot] = field(default_factory=list)
    judged: bool = False

    @property
    def complete(self) -> bool:
        return all(slot.done for slot in self.slots)

    @property
    def rewards(self) -> list[float]:
        """Rewards of the valid members, in slot order."""
        return [slot.reward for slot in self.slots if slot.reward is not None]

    @property
    def zero_variance(self) -> bool:
        """All valid members earned the same: a group-relative baseline leaves no signal."""
        return len(set(self.rewards)) <= 1

    def ends(self, end: End, reason: str) -> list[tuple[int, End, str]]:
        """(slot, end, reason) for each slot when the group ends as `end`. Invalid slots stay what they are."""
        return [
            (index, End.INVALID, slot.reason) if slot.done and slot.reward is None else (index, end, reason)
            for index, slot in enumerate(self.slots)
        ]
