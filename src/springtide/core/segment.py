"""The unit that a trajectory is made of: a run of tokens that were either read or sampled."""

import msgspec


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Immutable tokens at a place in the tree.

    `parent` is the index of the segment that this one continues, -1 at the root. A sampled segment has one log-prob
    and one policy version per token: the log-prob of the distribution that was sampled from, after temperature and
    truncation. A read segment (prompt, environment) has neither and is never trained on. `masked` takes a sampled
    segment out of the loss.
    """

    tokens: tuple[int, ...]
    parent: int = -1
    sampled: bool = False
    logprobs: tuple[float, ...] = ()
    versions: tuple[int, ...] = ()
    masked: bool = False
    images: tuple[str, ...] = ()
    turn: int = 0

    def __post_init__(self) -> None:
        expected = len(self.tokens) if self.sampled else 0
        assert len(self.logprobs) == expected, "one log-prob per sampled token, none for read tokens"
        assert len(self.versions) == expected, "one version per sampled token, none for read tokens"
