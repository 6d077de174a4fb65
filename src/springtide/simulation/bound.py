"""What no schedule can beat: the fluid bound, and what the staleness limit leaves of it.

G* = max over splits of the ranks of min(rollout rate, training rate), with nothing computed twice, nothing swapped and
nobody waiting; reference work is counted once. G*_K = min(G*, (K + 1) * B / E[slowest of a batch]).

That is still above what can be: versions are trained in order, so that a batch whose slowest episode is quick waits for
those before it. `in_order` says what that leaves.
"""

from dataclasses import dataclass
from statistics import fmean

from springtide.simulation.cluster import Cluster
from springtide.simulation.script import Script, Scripts, Work

SAMPLE = 64
"""Groups, at least, that rates are taken over."""

BATCHES = 16
"""Batches whose slowest episodes are looked at: tails are long."""

ATTEMPTS = 3
"""Of an episode that the infrastructure fails, as a run makes by default."""


@dataclass(frozen=True)
class Bound:
    """Trained tokens per second. `rollout_ranks`: of the best split. `slowest`: seconds of a batch's slowest."""

    fluid: float
    rollout_ranks: int
    slowest: float
    bounded: float
    in_order: float
    """`bounded`, with versions in order: see `Limits.in_order`."""
    environment_ratio: float
    """T_env / T_gpu of a turn at the batch size that the bound assumes."""


@dataclass(frozen=True)
class Limits:
    """What each part could do alone, for any number of ranks. Rates are trained tokens per second."""

    tokens: float
    """Sampled, per valid episode."""
    rollout_seconds: float
    """Of a rank, per valid episode: those that the infrastructure fails are paid for."""
    training_seconds: float
    """Of a rank, per valid episode."""
    update_seconds: float
    """Of the optimizer, which more ranks do not make shorter, per episode of a batch."""
    batch_tokens: float
    """Trained tokens of a batch."""
    alone: tuple[float, ...]
    """Seconds of the slowest episode of each of some batches, alone on an idle rank."""
    slot_seconds: float
    """An environment is taken for so long, per valid episode, if its rank is otherwise idle."""
    environment_ratio: float

    def rollout(self, ranks: int) -> float:
        return ranks * self.tokens / self.rollout_seconds

    def training(self, ranks: int) -> float:
        return self.tokens / (self.training_seconds / ranks + self.update_seconds)

    @property
    def slowest(self) -> float:
        """Seconds of a batch's slowest episode, a mean over batches."""
        return fmean(self.alone)

    def staleness(self, limit: int) -> float:
        """With at most `limit` + 1 batches under way."""
        return (limit + 1) * self.batch_tokens / self.slowest

    def in_order(self, limit: int) -> float:
        """As `staleness`, where a version cannot come before the one that precedes it.

        A batch that was issued at version v has to be in step v + `limit` + 1 at the latest, so that
        T[v + limit + 1] >= max(T[v + limit], T[v] + its slowest episode).
        """
        times = [0.0] * (limit + 1)
        for version, slowest in enumerate(self.alone):
            times.append(max(times[-1], times[version] + slowest))
        return len(self.alone) * self.batch_tokens / times[-1]

    def environments(self, slots: int) -> float:
        """With at most `slots` environments at the same time."""
        return slots * self.tokens / self.slot_seconds

    def split(self, ranks: int) -> int:
        """Ranks in rollout, of `ranks`, where the slower side is fastest."""
        return max(range(1, ranks), key=lambda rollout: min(self.rollout(rollout), self.training(ranks - rollout)))


def bound(workload: Work, cluster: Cluster, *, staleness: int, reference: bool, seed: int = 0) -> Bound:
    """The bound for this workload on this cluster."""
    found = limits(workload, cluster, reference=reference, seed=seed)
    best = found.split(cluster.ranks)
    fluid = min(found.rollout(best), found.training(cluster.ranks - best))
    return Bound(
        fluid=fluid,
        rollout_ranks=best,
        slowest=found.slowest,
        bounded=min(fluid, found.staleness(staleness)),
        in_order=min(fluid, found.staleness(staleness), found.in_order(staleness)),
        environment_ratio=found.environment_ratio,
    )


def limits(workload: Work, cluster: Cluster, *, reference: bool, seed: int = 0) -> Limits:
    """What a rank of this cluster can do for this workload, whatever the number of ranks."""
    scripts = Scripts(workload, seed)
    batch = [
        [scripts.script(task=task, slot=slot) for slot in range(workload.group_size)]
        for task in range(max(SAMPLE, workload.groups_per_step))
    ]
    episodes = [script for group in batch for script in group]
    kept = [script for script in episodes if not script.failed]
    tokens = fmean(script.sampled for script in kept)
    valid = len(kept) / len(episodes)
    busy, turn = _rollout_seconds(episodes, cluster, workload.group_size)
    trained = fmean(sum(script.trained) for script in kept)
    costs = cluster.costs
    step = workload.groups_per_step * workload.group_size
    return Limits(
        tokens=tokens,
        rollout_seconds=busy / valid,
        training_seconds=(costs.actor(1) + (costs.reference_token if reference else 0.0)) * trained,
        update_seconds=workload.updates_per_step * costs.optimizer / step,
        batch_tokens=step * tokens * (1 - (1 - valid) ** ATTEMPTS),
        alone=tuple(_slowest(scripts, cluster, number) for number in range(BATCHES)),
        slot_seconds=fmean(_alone(script, cluster) for script in episodes) / valid,
        environment_ratio=fmean(turn_.latency for script in episodes for turn_ in script.turns) / turn,
    )


def _rollout_seconds(episodes: list[Script], cluster: Cluster, group_size: int) -> tuple[float, float]:
    """GPU seconds of an episode at the largest batch that fits, and of a turn."""
    costs = cluster.costs
    decoded = [turn for script in episodes for turn in script.turns]
    read = sum(turn.output * (turn.context + turn.output / 2) for turn in decoded) / sum(t.output for t in decoded)
    size = max(1, min(cluster.max_batch, int(cluster.kv_tokens / read)))
    token = costs.decode_step(size, round(size * read)) / size
    seconds = [_prefill_seconds(script, cluster, group_size) + token * script.sampled for script in episodes]
    turns = fmean(len(script.turns) for script in episodes)
    return fmean(seconds), fmean(seconds) * size / turns


def _prefill_seconds(script: Script, cluster: Cluster, group_size: int) -> float:
    """Of everything that is new: the prompt once per group, then what each turn adds."""
    costs = cluster.costs
    own = script.turns[0].context - script.prefix
    prompt = costs.prefill(script.prefix - script.shared, script.shared) - costs.prefill_base
    seconds = prompt / group_size + costs.prefill_token * own + costs.prefill_attention * own * script.prefix
    for turn in script.turns[1:]:
        new = turn.context - turn.reusable
        seconds += costs.prefill_token * new + costs.prefill_attention * new * (turn.reusable + new / 2)
    return seconds


def _slowest(scripts: Scripts, cluster: Cluster, batch: int) -> float:
    """Seconds of the slowest episode of a batch, each alone on an idle rank and as often as it has to be tried."""
    work = scripts.workload
    tasks = range(batch * work.groups_per_step, (batch + 1) * work.groups_per_step)
    return max(_tried(scripts, cluster, task, slot) for task in tasks for slot in range(work.group_size))


def _tried(scripts: Scripts, cluster: Cluster, task: int, slot: int) -> float:
    seconds = 0.0
    for attempt in range(1, ATTEMPTS + 1):
        script = scripts.script(task=task, slot=slot, attempt=attempt)
        seconds += _alone(script, cluster)
        if not script.failed:
            break
    return seconds


def _alone(script: Script, cluster: Cluster) -> float:
    costs = cluster.costs
    seconds = script.reset + (0.0 if script.failed else script.grade)
    for turn in script.turns:
        seconds += costs.prefill(turn.context - turn.reusable, turn.reusable) + turn.latency
        middle = turn.context + turn.output // 2
        seconds += turn.output * costs.decode_step(1, middle)
    return seconds
