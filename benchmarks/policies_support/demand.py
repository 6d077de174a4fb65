"""How much KV episodes in flight ask for, and hardware and workloads on which they ask for more or less."""

from math import exp, log1p
from statistics import fmean
from typing import NamedTuple

from springtide.simulation.bound import SAMPLE, limits
from springtide.simulation.cluster import Cluster
from springtide.simulation.distribution import LogNormal, mean
from springtide.simulation.script import Scripts
from springtide.simulation.workload import Workload

MARGIN = 1024
"""Tokens of KV beyond the longest context, at least."""

FASTEST = 0.01
"""Least factor of latencies."""


class Demand(NamedTuple):
    """Of a rank in rollout: `episodes` that keep its batch busy, which hold `context` tokens each at the end of a turn.

    `ratio`: T_env / T_gpu of a turn.
    """

    episodes: float
    context: float
    ratio: float

    @property
    def tokens(self) -> float:
        return self.episodes * self.context


def demand(work: Workload, hardware: Cluster, seed: int = 0) -> Demand:
    """A batch of b turns on the device takes b (1 + T_env / T_gpu) episodes; b is what KV or the batch limit allows."""
    scripts = Scripts(work, seed)
    contexts = [
        turn.context + turn.output
        for task in range(SAMPLE)
        for slot in range(work.group_size)
        for turn in scripts.script(task=task, slot=slot).turns
    ]
    context = fmean(contexts)
    ratio = limits(work, hardware, reference=True, seed=seed).environment_ratio
    batch = max(1.0, min(hardware.max_batch, hardware.kv_tokens / context))
    return Demand(batch * (1 + ratio), context, ratio)


def divided(hardware: Cluster, work: Workload, by: int) -> tuple[Cluster, Workload]:
    """A part of the ranks and of a batch: the same for each rank, in less time."""
    return (
        hardware.model_copy(update={"ranks": hardware.ranks // by}),
        work.model_copy(update={"groups_per_step": work.groups_per_step // by}),
    )


def subscribed(work: Workload, hardware: Cluster, times: float) -> Cluster:
    """With so little KV that the demand on the hardware as given is `times` its capacity."""
    tokens = max(work.context + MARGIN, round(demand(work, hardware).tokens / times))
    return hardware.model_copy(update={"kv_tokens": tokens})


def paced(work: Workload, hardware: Cluster, ratio: float) -> Workload:
    """With latencies such that T_env / T_gpu is `ratio`."""

    def at(factor: float) -> float:
        scaled = work.model_copy(update={"latency_factor": factor})
        return limits(scaled, hardware, reference=True).environment_ratio

    # A line: what failures take does not change.
    slope = at(2.0) - at(1.0)
    factor = max(FASTEST, 1.0 + (ratio - at(1.0)) / slope)
    return work.model_copy(update={"latency_factor": factor})


def varied(work: Workload, deviation: float) -> Workload:
    """With log-normal latencies of the same mean and of this coefficient of variation, caps left aside."""
    shape = log1p(deviation**2) ** 0.5
    median = mean(work.latency) * exp(-(shape**2) / 2)
    return work.model_copy(update={"latency": LogNormal(type="log_normal", median=median, shape=shape)})
