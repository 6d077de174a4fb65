"""Who a piece of rollout work belongs to: one attempt at one slot of one group."""

from enum import StrEnum

import msgspec


class Purpose(StrEnum):
    """Why an episode runs. Training and evaluation have separate group numbers and separate random streams."""

    TRAIN = "train"
    EVALUATE = "evaluate"


class Member(msgspec.Struct, frozen=True, order=True):
    """The identity of an episode. Ordered by issue: group, then slot, then attempt."""

    purpose: Purpose
    group: int
    slot: int
    attempt: int = 1

    def __str__(self) -> str:
        prefix = "" if self.purpose is Purpose.TRAIN else "e"
        return f"{prefix}{self.group}.{self.slot}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> "Member":
        """The inverse of `str`: `12.3.1` for training, `e12.3.1` for evaluation. ValueError on anything else."""
        purpose = Purpose.EVALUATE if text.startswith("e") else Purpose.TRAIN
        numbers = text.removeprefix("e").split(".")
        if len(numbers) not in (2, 3) or not all(number.isdecimal() for number in numbers):
            raise ValueError(
                f"'{text}' is not an episode; write GROUP.SLOT or GROUP.SLOT.ATTEMPT, such as 12.3 or e0.0.1."
            )
        return cls(purpose, *(int(number) for number in numbers))
