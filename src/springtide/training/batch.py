"""What a train step works on: flat rows out of groups of trajectories.

A row is one root-to-leaf path of one valid member. Invalid members leave no rows; they are only counted.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from springtide.core.group import Group
from springtide.core.trajectory import Sample


@dataclass(frozen=True, kw_only=True)
class Row:
    """A training sample as arrays of one length: tokens int64, mask bool (trained on), log-probs float32 of the
    behaviour policy and versions int32 (both meaningful where the token was sampled).

    `group` and `member` are places in the step's groups and in the group's members, `sample` in the member's samples.
    """

    tokens: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]
    behaviour: npt.NDArray[np.float32]
    versions: npt.NDArray[np.int32]
    group: int
    member: int
    sample: int = 0
    advantage: float = 0.0

    @property
    def trained_tokens(self) -> int:
        return int(self.mask.sum())

    @property
    def length(self) -> int:
        """Tokens that a model must read to predict the trained ones: all before the last of them."""
        trained = np.flatnonzero(self.mask)
        return int(trained[-1]) if trained.size else 0


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows in the order of groups and members; `rewards[group][member]` is None where a member is invalid."""

    rows: tuple[Row, ...]
    rewards: tuple[tuple[float | None, ...], ...]

    @property
    def trained_tokens(self) -> int:
        return sum(row.trained_tokens for row in self.rows)


def row_from_sample(sample: Sample, *, group: int = 0, member: int = 0, place: int = 0) -> Row:
    """The sample's tuples as arrays. `place`: in the member's samples."""
    return Row(
        tokens=np.array(sample.tokens, dtype=np.int64),
        mask=np.array(sample.mask, dtype=np.bool_),
        behaviour=np.array(sample.logprobs, dtype=np.float32),
        versions=np.array(sample.versions, dtype=np.int32),
        group=group,
        member=member,
        sample=place,
    )


def batch_from_groups(groups: tuple[Group, ...]) -> Batch:
    """All paths of all valid members of `groups`."""
    rows = tuple(
        row_from_sample(sample, group=g, member=m, place=place)
        for g, group in enumerate(groups)
        for m, trajectory in enumerate(group.members)
        if trajectory.valid
        for place, sample in enumerate(trajectory.samples())
    )
    return Batch(rows=rows, rewards=tuple(tuple(member.reward for member in group.members) for group in groups))


def split_by_groups(rows: tuple[Row, ...], *, groups: int, parts: int) -> list[tuple[Row, ...]]:
    """`rows` in `parts` disjoint parts of whole groups, in order, as even as `groups` allows."""
    bounds = [round(part * groups / parts) for part in range(parts + 1)]
    return [tuple(row for row in rows if start <= row.group < end) for start, end in pairwise(bounds)]
