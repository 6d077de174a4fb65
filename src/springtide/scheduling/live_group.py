"""An issued group that has not ended: the state of its slots."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from springtide.core.group import End
from springtide.ports.journal import EndRecord


@dataclass
class Slot:
    """`done` once an attempt was valid or the attempts ran out; `reward` is None where the slot is invalid."""

    attempt: int = 1
    running: bool = False
    done: bool = False
    reward: float | None = None
    reason: str = ""

    def finish(self, reward: float | None, reason: str, *, attempts: int) -> bool:
        """An attempt ended. Whether the slot is done; else its next attempt is due."""
        self.running = False
        self.done = reward is not None or self.attempt >= attempts
        if reward is not None:
            self.reward = reward
        elif self.done:
            self.reason = reason
        else:
            self.attempt += 1
        return self.done


@dataclass
class LiveGroup:
    """Mutable, owned by the scheduler. `scored`: its members have been seen together, where the environment wants
    that. `judged`: it was decided to keep this complete group. `step`: the one in which it has a place."""

    id: int
    task: int
    base_version: int
    reissue: int
    slots: list[Slot] = field(default_factory=list)
    scored: bool = True
    judged: bool = False
    step: int | None = None

    @property
    def complete(self) -> bool:
        return self.scored and all(slot.done for slot in self.slots)

    @property
    def unscored(self) -> bool:
        """All members are done, and the environment has yet to see them together."""
        return not self.scored and all(slot.done for slot in self.slots)

    @property
    def rewards(self) -> list[float]:
        """Rewards of the valid members, in slot order."""
        return [slot.reward for slot in self.slots if slot.reward is not None]

    @property
    def zero_variance(self) -> bool:
        """All valid members earned the same: a group-relative baseline leaves no signal."""
        return len(set(self.rewards)) <= 1

    def restart(self) -> list[int]:
        """The slots whose episodes died with the process that played them."""
        left = [index for index, slot in enumerate(self.slots) if not slot.done]
        for index in left:
            self.slots[index].running = False
        return left

    def score(self, rewards: Sequence[float | None], reasons: Sequence[str]) -> None:
        """The verdict on the whole group, one per slot."""
        for slot, reward, reason in zip(self.slots, rewards, reasons, strict=True):
            slot.reward, slot.reason = reward, reason
        self.scored = True

    def ends(self, end: End, reason: str, *, step: int) -> list[EndRecord]:
        """What becomes of each slot when the group ends as `end`. Invalid slots stay what they are."""
        return [
            EndRecord(self.id, index, End.INVALID, step, slot.reason)
            if slot.done and slot.reward is None
            else EndRecord(self.id, index, end, step, reason)
            for index, slot in enumerate(self.slots)
        ]
