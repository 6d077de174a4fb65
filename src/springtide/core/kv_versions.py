"""Which policy versions computed a session's keys and values, from its first token on."""


class KvVersions:
    """Runs of (version, tokens). A session that goes on over a weight update has several; one whose KV is being
    refreshed has its beginning from the present version, whatever follows.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []

    @property
    def tokens(self) -> int:
        return sum(tokens for _, tokens in self._runs)

    @property
    def oldest(self) -> int:
        """The oldest version of all; -1 without KV."""
        return min((version for version, _ in self._runs), default=-1)

    def gap(self, version: int) -> int:
        """Versions between the oldest KV and `version`; 0 without KV."""
        return version - self.oldest if self._runs else 0

    def leading(self, version: int) -> int:
        """Tokens from the first on that `version` computed; only these may serve another session."""
        return self._runs[0][1] if self._runs and self._runs[0][0] == version else 0

    def truncate(self, tokens: int) -> None:
        """Keep the first `tokens` tokens, or all if there are fewer."""
        kept: list[tuple[int, int]] = []
        for version, count in self._runs:
            if tokens <= 0:
                break
            kept.append((version, min(count, tokens)))
            tokens -= count
        self._runs = kept

    def extend(self, tokens: int, version: int) -> None:
        """`tokens` more follow, computed under `version`."""
        if tokens <= 0:
            return
        if self._runs and self._runs[-1][0] == version:
            tokens += self._runs.pop()[1]
        self._runs.append((version, tokens))

    def renew(self, tokens: int, version: int) -> None:
        """The first `tokens` tokens were computed again, under `version`."""
        before, self._runs = self._runs, []
        self.extend(tokens, version)
        for old, count in before:
            self.extend(count - tokens, old)
            tokens = max(0, tokens - count)
