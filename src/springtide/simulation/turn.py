"""A modelled turn: what is asked for, what came back, and the turn in between."""

from dataclasses import dataclass, field

from springtide.core.sampling import Sampled, SampleRequest, SampleStop, SamplingParams


class ModelledRequest(SampleRequest, frozen=True, kw_only=True):
    """One turn. `context` tokens are presented; the first `reusable` of them are as the session's last turn left them.

    The first `prefix` tokens of a first turn are common to its group, the first `shared` to every episode. Token ids
    and parameters of sampling are left out.
    """

    tokens: tuple[int, ...] = ()
    params: SamplingParams = SamplingParams(max_tokens=0)
    context: int
    reusable: int
    output: int
    prefix: int
    shared: int

    @property
    def length(self) -> int:
        return self.context


class ModelledSample(Sampled, frozen=True, kw_only=True):
    """`counts` are (version, tokens sampled from it), in order, instead of one entry per token."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    versions: tuple[int, ...] = ()
    stop: SampleStop = SampleStop.STOP_TOKEN
    counts: tuple[tuple[int, int], ...]

    @property
    def length(self) -> int:
        return sum(tokens for _, tokens in self.counts)


@dataclass(slots=True)
class Running:
    """A turn in the batch. It began at decode step `begun` of the rank and ends at step `end`.

    `versions`: what it sampled before, `version` is what it samples from since step `since`.
    """

    request: ModelledRequest
    begun: int
    end: int
    version: int
    since: int
    versions: list[tuple[int, int]] = field(default_factory=list)

    def settle(self, step: int) -> None:
        """Book what was sampled up to decode step `step`."""
        if step > self.since:
            self.versions.append((self.version, step - self.since))
            self.since = step


@dataclass(slots=True)
class Arriving:
    """A turn whose KV is being reloaded; `held` tokens of it. The room for its whole context is taken."""

    request: ModelledRequest
    held: int
