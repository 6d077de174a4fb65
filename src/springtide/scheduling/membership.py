"""Which ranks roll out, which train and which are dead. Pure.

A rank that joins, leaves a role or dies is the same kind of change: another membership, with the next epoch. What a
rank says carries the epoch since which it lives; what it said in an earlier life is heard no more. No role is left
without a rank as long as there are two.
"""

import msgspec

DEAD = -1


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """`rollout` and `training` are rank numbers in order; all of them in both where ranks take turns (`together`).

    `since`: of each rank, the epoch since which it lives, or DEAD. `wanted`: ranks in rollout, as was decided last; a
    rank that comes back goes where one is missing.
    """

    rollout: tuple[int, ...]
    training: tuple[int, ...]
    since: tuple[int, ...]
    wanted: int
    together: bool = False
    epoch: int = 0

    @classmethod
    def of(cls, ranks: int, rollout: int) -> "Membership":
        """The first `rollout` of `ranks` roll out, and the others train; if none is left for that, all do both."""
        everybody = tuple(range(ranks))
        together = rollout == ranks
        return cls(
            rollout=everybody[:rollout],
            training=everybody if together else everybody[rollout:],
            since=(0,) * ranks,
            wanted=rollout,
            together=together,
        )

    @property
    def alive(self) -> int:
        return len(self.since) - self.since.count(DEAD)

    @property
    def complete(self) -> bool:
        """Whether each role has a rank."""
        return bool(self.rollout and self.training)

    def lives(self, rank: int) -> bool:
        return self.since[rank] != DEAD

    def hears(self, rank: int, epoch: int) -> bool:
        """Whether what `rank` says counts: it lives, and said so in this life."""
        return self.lives(rank) and self.since[rank] == epoch

    def split(self, rollout: int) -> "Membership":
        """So many ranks roll out, as far as there are enough: the last ones leave first, the first ones come first."""
        wanted = max(1, min(rollout, self.alive - 1))
        if self.together and self.alive < 2:
            return self
        if self.together:
            return self._next(
                rollout=self.rollout[:wanted], training=self.training[wanted:], wanted=wanted, together=False
            )
        if wanted == self.wanted == len(self.rollout):
            return self
        leaving, coming = self.rollout[wanted:], self.training[: max(0, wanted - len(self.rollout))]
        return self._next(
            rollout=sorted({*self.rollout, *coming} - {*leaving}),
            training=sorted({*self.training, *leaving} - {*coming}),
            wanted=wanted,
        )

    def taking_turns(self) -> "Membership":
        """All that live roll out and train."""
        living = sorted({*self.rollout, *self.training})
        everybody = len(self.since)
        return self if self.together else self._next(rollout=living, training=living, wanted=everybody, together=True)

    def died(self, rank: int) -> "Membership":
        """Without that rank; of a role that has none left, one is moved over."""
        left = self._next(
            rollout=[other for other in self.rollout if other != rank],
            training=[other for other in self.training if other != rank],
            since=self._since(rank, DEAD),
        )
        if left.together or left.complete or left.alive < 2:
            return left
        if not left.rollout:
            return msgspec.structs.replace(left, rollout=left.training[:1], training=left.training[1:])
        return msgspec.structs.replace(left, rollout=left.rollout[:-1], training=left.rollout[-1:])

    def joined(self, rank: int) -> "Membership":
        """A dead rank is there again, and knows nothing of its earlier life."""
        missing = bool(self.training) and len(self.rollout) < self.wanted
        return self._next(
            rollout=sorted({*self.rollout, rank}) if missing or self.together else self.rollout,
            training=self.training if missing and not self.together else sorted({*self.training, rank}),
            since=self._since(rank, self.epoch + 1),
        )

    def _since(self, rank: int, epoch: int) -> tuple[int, ...]:
        return tuple(epoch if other == rank else since for other, since in enumerate(self.since))

    def _next(self, **changes: object) -> "Membership":
        made = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
        return msgspec.structs.replace(self, epoch=self.epoch + 1, **made)
