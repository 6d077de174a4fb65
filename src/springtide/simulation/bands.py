"""How far a modelled run depends on what its costs are taken to be: each lower and higher, all else the same."""

from collections.abc import Callable

import msgspec

from springtide.simulation.cluster import Cluster
from springtide.simulation.script import Work
from springtide.simulation.simulate import elastic
from springtide.simulation.strategy import Strategy
from springtide.simulation.summary import Summary, summarise

WIDTH = 0.3
"""Costs are lowered and raised by this share of themselves."""

NOTABLE = 0.01
"""A change by a smaller share of the goodput is not remarked upon."""

GROUPS: dict[str, tuple[str, ...]] = {
    "prefill": ("prefill_base", "prefill_token", "prefill_attention", "join", "turn"),
    "decode": ("decode_base", "decode_sequence", "decode_context", "visit"),
    "reload": ("reload_base", "reload_token"),
    "training": ("reference_token", "forward_token", "backward_token", "training_attention", "optimizer"),
    "publish": ("publish",),
    "swap": ("swap",),
    "role_switch": ("role_switch",),
}
"""Fields of ServiceCosts that rise and fall together."""

LATENCY = "environment latency"


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Goodputs (trained tokens per second, medians over seeds) with one thing lowered and raised by `WIDTH`.

    `change_lower` and `change_higher` are relative to the run as given.
    """

    what: str
    lower: float
    higher: float
    change_lower: float
    change_higher: float

    @property
    def effect(self) -> float:
        return max(abs(self.change_lower), abs(self.change_higher))

    @property
    def by_chance(self) -> bool:
        """It is better (or worse) both ways, by more than `NOTABLE`: other episodes were trained."""
        least, most = sorted((self.change_lower, self.change_higher))
        return least > NOTABLE or most < -NOTABLE


def bands(
    base: Summary,
    workload: Work,
    cluster: Cluster,
    *,
    steps: int,
    warm_steps: int,
    watch: Callable[[str], None] = lambda what: None,
) -> list[Band]:
    """Those of the run that `base` is the summary of, largest effect first.

    The split stays as it was in `base`; policies know the costs as they are in each run. `watch` is told what comes
    next. What the run cannot meet is not played: costs of zero, and role switches where no rank changes its role.
    """
    strategy = Strategy.model_validate(base.strategy)
    given = base.goodput_tokens_per_s

    def goodput(what: str, factor: float) -> float:
        work, hardware = scaled(workload, cluster, what, factor)
        if (work, hardware) == (workload, cluster) or (what == "role_switch" and not elastic(strategy)):
            return given
        watch(f"{what} {factor - 1:+.0%}")
        summary, _ = summarise(work, hardware, strategy, seeds=base.seeds, steps=steps, warm_steps=warm_steps)
        return summary.goodput_tokens_per_s

    found = []
    for what in (*GROUPS, LATENCY):
        lower, higher = goodput(what, 1 - WIDTH), goodput(what, 1 + WIDTH)
        found.append(
            Band(
                what=what,
                lower=lower,
                higher=higher,
                change_lower=lower / given - 1,
                change_higher=higher / given - 1,
            )
        )
    return sorted(found, key=lambda band: -band.effect)


def scaled(workload: Work, cluster: Cluster, what: str, factor: float) -> tuple[Work, Cluster]:
    """The two with one group of costs, or the latency of the environment, multiplied by `factor`."""
    if what == LATENCY:
        return workload.model_copy(update={"latency_factor": factor * workload.latency_factor}), cluster
    costs = cluster.costs.model_copy(update={name: factor * getattr(cluster.costs, name) for name in GROUPS[what]})
    return workload, cluster.model_copy(update={"costs": costs})
