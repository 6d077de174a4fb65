"""What the engine knows of one episode: its tokens, where their KV is, and the turn in progress."""

from collections.abc import Sequence
from typing import Literal

from springtide.core.member import Member
from springtide.core.sampling import SampleRequest
from springtide.engines.blocks import Block
from springtide.engines.storage import HostCopy

Residency = Literal["hot", "warm", "cold"]


class Turn:
    """A request on its way. `order` numbers submissions; `started` is set when it is first admitted."""

    def __init__(self, request: SampleRequest, order: int) -> None:
        self.request = request
        self.order = order
        self.params = request.params
        self.prompt_length = len(request.tokens)
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.started = False

    @property
    def remaining(self) -> int:
        """Tokens that may still be sampled."""
        return self.params.max_tokens - len(self.logprobs)


class Session:
    """Invariants: `computed` <= `known` <= len(tokens); with a turn in progress `computed` < len(tokens).

    `tokens` is the path so far, sampled tokens included; `computed` of them have KV, in `block` (hot) or in `host`
    (warm). `known` of them had KV at some time: computing these again is a re-prefill. The first `base_length` of
    the KV were computed under policy version `base_version`, and only these are shared with the group.
    """

    def __init__(self, member: Member, key: int) -> None:
        self.member = member
        self.key = key
        self.tokens: list[int] = []
        self.computed = 0
        self.known = 0
        self.block: Block | None = None
        self.host: HostCopy | None = None
        self.host_tokens = 0
        self.base_version = -1
        self.base_length = 0
        self.last_used = 0
        self.turn: Turn | None = None
        self.running = False

    @property
    def pending(self) -> int:
        """Tokens without KV; 1 when only the newest is left, which is then decoded."""
        return len(self.tokens) - self.computed

    @property
    def residency(self) -> Residency:
        if self.block is not None:
            return "hot"
        return "warm" if self.host is not None else "cold"

    def present(self, tokens: Sequence[int]) -> None:
        """The path is now `tokens`: keep what they have in common with what is known."""
        presented = list(tokens)
        # The newest token is always computed again: its logits are wanted.
        common = min(common_prefix(self.tokens[: self.known], presented), len(presented) - 1)
        self.tokens = presented
        self.known = common
        self.truncate(common)

    def truncate(self, computed: int) -> None:
        self.computed = min(self.computed, computed)
        self.base_length = min(self.base_length, self.computed)

    def extend(self, count: int, version: int) -> None:
        """`count` more tokens have KV, computed under `version`."""
        if self.computed == 0:
            self.base_version, self.base_length = version, 0
        if version == self.base_version and self.base_length == self.computed:
            self.base_length += count
        self.computed += count
        self.known = max(self.known, self.computed)

    def adopt(self, source: "Session", count: int) -> None:
        """The KV of the first `count` tokens was copied from `source`."""
        self.computed = self.base_length = count
        self.base_version = source.base_version
        self.known = max(self.known, count)

    def shared_with(self, tokens: Sequence[int], version: int) -> int:
        """Leading `tokens` whose KV under `version` can be copied from here."""
        if self.base_version != version or self.residency == "cold":
            return 0
        return common_prefix(self.tokens[: self.base_length], tokens)


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix of two sequences of one type."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
