"""How many episodes are in flight: as many as keep the decode batch full while others are with their environments.

A batch of b turns on the device, each of which takes T_turn there and T_env outside, needs N = b (1 + T_env / T_turn)
episodes (Little's law); more would wait in line.

Device and host memory hold F episodes. With more, a turn finds its KV lost with probability 1 - F / N and takes R
seconds to compute it again, so the device takes T_turn / b + (1 - F / N) R for a turn. Episodes come back as fast as
that if N = (T_turn + T_env + F R) / (T_turn / b + R): beyond F where tools are slow and lost KV is cheap, hardly so
where it is dear.
"""

from dataclasses import dataclass

from springtide.scheduling.costs import CurrentCosts
from springtide.scheduling.readiness import Readiness

YOUNG = 16
"""Episodes that have to end before the contexts seen are those of all ages."""

GROWTH = 2.0
"""By how much contexts are expected to grow until then."""


@dataclass(frozen=True, kw_only=True)
class ConcurrencyLaw:
    """Per rank in rollout: KV capacity on the device and in host memory (tokens), and the largest batch.

    A token of context takes `padding` of the device's, where the engine rounds up.
    `spare` more than the law says absorb that not all take the mean; `reserve` of the memory is left for growth;
    `start` episodes show how they are.
    """

    costs: CurrentCosts
    kv_tokens: int
    host_tokens: int
    max_batch: int
    padding: float = 1.0
    start: int = 16
    spare: float = 0.15
    reserve: float = 0.1

    def limit(self, seen: Readiness) -> int | None:
        """Episodes in flight per rank; None while too little is known."""
        if seen.context is None or seen.output is None or seen.appended is None:
            return None
        growing = GROWTH if seen.ended < YOUNG else 1.0
        held = (1 - self.reserve) * (self.kv_tokens / self.padding + self.host_tokens) / (growing * seen.context)
        seconds = self.turn_seconds(seen)
        cycle, busy = seconds + (seen.environment or 0.0), seconds / self.batch(seen.context)
        again = self.costs().recompute(round(growing * seen.context))
        useful = max(held, (cycle + held * again) / (busy + again))
        return max(1, round(min(cycle / busy * (1 + self.spare), useful)))

    def batch(self, context: float) -> float:
        """Turns that the device holds at once."""
        return max(1.0, min(self.max_batch, self.kv_tokens / self.padding / context))

    def turn_seconds(self, seen: Readiness) -> float:
        """Of a turn in a full batch: its own tokens, while the batch also computes what the others' turns append."""
        assert seen.context is not None
        assert seen.output is not None
        assert seen.appended is not None
        size = self.batch(seen.context)
        costs = self.costs()
        prefill = costs.prefill(round(seen.appended), round(seen.context)) - costs.prefill_base
        return seen.output * costs.decode_step(round(size), round(size * seen.context)) + size * prefill
