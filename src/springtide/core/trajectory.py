"""What an episode leaves behind: a tree of segments, written once, only read afterwards."""

import msgspec

from springtide.core.member import Member
from springtide.core.message import Message
from springtide.core.outcome import Outcome, Valid
from springtide.core.segment import Segment


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A root-to-leaf path, flat: what a trainer reads. All tuples have the length of `tokens`.

    `mask` is True where the token was sampled and takes part in the loss; `logprobs` and `versions` are 0.0 and -1
    elsewhere.
    """

    tokens: tuple[int, ...]
    mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]


class EnvironmentTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that an episode waited for its environment: `steps` has one for each turn that was answered, the last of
    them also where that failed."""

    reset: float = 0.0
    steps: tuple[float, ...] = ()
    verify: float = 0.0


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """An episode's tokens and its outcome. `messages` is the same conversation for people; training never reads it."""

    member: Member
    task_id: str
    segments: tuple[Segment, ...]
    outcome: Outcome
    messages: tuple[Message, ...] = ()
    turns: int = 0
    seconds: float = 0.0
    environment: EnvironmentTimes | None = None
    """None where it was not recorded, as by earlier versions."""

    @property
    def valid(self) -> bool:
        return isinstance(self.outcome, Valid)

    @property
    def reward(self) -> float | None:
        """The verified reward; None where the outcome is invalid."""
        return self.outcome.reward if isinstance(self.outcome, Valid) else None

    def leaves(self) -> tuple[int, ...]:
        """Indices of the segments that nothing continues, in order."""
        parents = {segment.parent for segment in self.segments}
        return tuple(index for index in range(len(self.segments)) if index not in parents)

    def path(self, leaf: int) -> tuple[Segment, ...]:
        """The segments from the root to `leaf`."""
        reversed_path = []
        index = leaf
        while index != -1:
            reversed_path.append(self.segments[index])
            index = self.segments[index].parent
        return tuple(reversed(reversed_path))

    def samples(self) -> tuple[Sample, ...]:
        """One training sample per leaf. A sampled segment shared by several paths is trained on the first only."""
        seen: set[int] = set()
        return tuple(self._sample(leaf, seen) for leaf in self.leaves())

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each training sample."""
        return tuple(sum(len(segment.tokens) for segment in self.path(leaf)) for leaf in self.leaves())

    def _sample(self, leaf: int, seen: set[int]) -> Sample:
        tokens: list[int] = []
        mask: list[bool] = []
        logprobs: list[float] = []
        versions: list[int] = []
        for segment in self.path(leaf):
            length = len(segment.tokens)
            trained = segment.sampled and not segment.masked and id(segment) not in seen
            seen.add(id(segment))
            tokens.extend(segment.tokens)
            mask.extend([trained] * length)
            logprobs.extend(segment.logprobs if segment.sampled else [0.0] * length)
            versions.extend(segment.versions if segment.sampled else [-1] * length)
        return Sample(tokens=tuple(tokens), mask=tuple(mask), logprobs=tuple(logprobs), versions=tuple(versions))

    @property
    def trained_tokens(self) -> int:
        """Sampled, unmasked tokens: what goodput counts."""
        return sum(len(segment.tokens) for segment in self.segments if segment.sampled and not segment.masked)

    @property
    def oldest_version(self) -> int | None:
        """The oldest policy version among unmasked sampled tokens; None if there are none."""
        versions = [v for segment in self.segments if segment.sampled and not segment.masked for v in segment.versions]
        return min(versions, default=None)
