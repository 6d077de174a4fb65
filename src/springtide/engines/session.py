"""What the engine knows of one episode: its tokens, where their KV is, and the turn in progress."""

from collections.abc import Sequence
from typing import Literal

from springtide.core.kv_versions import KvVersions
from springtide.core.member import Member
from springtide.core.sampling import SampleRequest
from springtide.engines.blocks import Block
from springtide.engines.storage import HostCopy

Residency = Literal["hot", "warm", "cold"]


class Turn:
    """A request on its way. `order` numbers submissions; `started` is set when it is first admitted.

    `probed`: it begins over KV of an earlier version, and is scored with fresh KV when it has ended.
    """

    def __init__(self, request: SampleRequest, order: int) -> None:
        self.request = request
        self.order = order
        self.params = request.params
        self.prompt_length = len(request.tokens)
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.started = False
        self.probed = False

    @property
    def remaining(self) -> int:
        """Tokens that may still be sampled."""
        return self.params.max_tokens - len(self.logprobs)


class Session:
    """Invariants: `computed` <= `known` <= len(tokens); with a turn in progress `computed` < len(tokens).

    `tokens` is the path so far, sampled tokens included; `computed` of them have KV, in `block` (hot) or in `host`
    (warm). `known` of them had KV at some time: computing these again is a re-prefill. `versions` are those that
    computed the KV; only what begins with the present one is shared with the group.
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
        self.versions = KvVersions()
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
        self.versions.truncate(self.computed)

    def lose(self) -> None:
        """The KV in host memory is given up; `known` stays."""
        self.host, self.host_tokens = None, 0
        self.truncate(0)

    def extend(self, count: int, version: int) -> None:
        """`count` more tokens have KV, computed under `version`."""
        self.versions.extend(count, version)
        self.computed += count
        self.known = max(self.known, self.computed)

    def adopt(self, count: int, version: int) -> None:
        """The KV of the first `count` tokens, and no more, was copied from a session that has it under `version`."""
        self.truncate(0)
        self.versions.extend(count, version)
        self.computed = count
        self.known = max(self.known, count)

    def shared_with(self, tokens: Sequence[int], version: int) -> int:
        """Leading `tokens` whose KV under `version` can be copied from here."""
        leading = self.versions.leading(version)
        if not leading or self.residency == "cold":
            return 0
        return common_prefix(self.tokens[:leading], tokens)


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
