"""What a modelled rank does, counted and priced in one place: so that what it reports explains what it took."""

from springtide.scheduling.costs import ServiceCosts
from springtide.simulation.stretch import seconds_of

COUNTED = (
    "prefilled",
    "reprefilled",
    "reused",
    "refreshed",
    "decoded",
    "preemptions",
    "reloads",
    "visits",
    "starts",
    "joins",
    "turns",
    "attended",
    "steps",
    "read",
    "reloaded",
    "reload_seconds",
    "reload_wait",
)
"""Totals of `EngineStats`."""


class Meter:
    """`spent` is what the last visit, or refresh, took: seconds by bin, `elapsed` in all. `costs` may be others at each
    visit."""

    def __init__(self, costs: ServiceCosts) -> None:
        self.costs = costs
        self.counts: dict[str, float] = dict.fromkeys(COUNTED, 0)
        self.spent: dict[str, float] = {}
        self.elapsed = 0.0

    def begin(self) -> None:
        self.spent, self.elapsed = {}, 0.0

    def count(self, name: str, number: int = 1) -> None:
        self.counts[name] += number

    def visit(self) -> None:
        """There is something to do."""
        self.count("visits")
        self._spend("decode", self.costs.visit)

    def prefill(self, *, joins: bool) -> None:
        """A pass with prefill; it `joins` decoding."""
        self.count("joins" if joins else "starts")
        self._spend("prefill", self.costs.join if joins else self.costs.prefill_base)

    def turn(self) -> None:
        """Something is prefilled of a turn."""
        self.count("turns")
        self._spend("prefill", self.costs.turn)

    def compute(self, bin_name: str, tokens: int, before: int) -> None:
        """`tokens` in a pass of prefill, after `before`."""
        if tokens:
            self.counts["attended"] += _attended(tokens, before)
            self._spend(bin_name, self.costs.prefill(tokens, before) - self.costs.prefill_base)

    def refresh(self, tokens: int, before: int) -> None:
        """A pass of its own."""
        self.count("starts")
        self.count("refreshed", tokens)
        self.counts["attended"] += _attended(tokens, before)
        self.spent = {"refresh": self.costs.prefill(tokens, before)}

    def decode(self, steps: int, *, batch: int, context: int) -> None:
        """`steps` tokens for each of `batch` sequences, which have `context` tokens together at first."""
        self.count("steps", steps)
        self.count("decoded", batch * steps)
        self.count("read", steps * context + batch * steps * (steps - 1) // 2)
        self._spend("decode", seconds_of(self.costs, steps, batch=batch, context=context))

    def reload(self, tokens: int) -> float:
        """Seconds on the copy stream."""
        seconds = self.costs.reload(tokens)
        self.count("reloads")
        self.count("reloaded", tokens)
        self.counts["reload_seconds"] += seconds
        return seconds

    def wait(self, seconds: float) -> None:
        """For the copy stream, with nothing else to do."""
        self.counts["reload_wait"] += seconds
        self._spend("reload", seconds)

    def _spend(self, bin_name: str, seconds: float) -> None:
        self.spent[bin_name] = self.spent.get(bin_name, 0.0) + seconds
        self.elapsed += seconds


def _attended(tokens: int, before: int) -> float:
    return tokens * (before + (tokens - 1) / 2)
