"""What was planned, what is different, and the strategy that is compared."""

import tomllib
from pathlib import Path
from typing import Any

from springtide.simulation.strategy import Strategy

PLAN = tomllib.loads((Path(__file__).parents[1] / "policies.toml").read_text())
RUN = PLAN["run"]

DEVIATIONS = (
    "episodes in flight per rank are swept from 8 on, for every baseline: a first run by the plan, from 32 or 64 on, "
    "had its optimum at that edge where KV binds, and flattered us",
    "baselines are tuned on a seed of their own over fewer steps, not over the full product of their settings: all "
    "numbers of episodes at the bound's split, then one setting after the other, a place up or down for as long as "
    "that is better, until none is",
    "of the baselines of a group, those within a tenth of the group's best in tuning are run with all seeds",
    "over-provision and abort is held to the same staleness bound as all others, at which a surplus of 2 is the most",
    "multi-version has at least two ranks in rollout, one for each version of the window",
    "our reconstruction of TideRL is given more than the description says: the best static split instead of one rank "
    "per step, and our choice among all reference modes instead of two thresholds",
    "a rank computes new tokens in the passes that decode (chunked prefill), for ours and for baselines alike",
    "the bound's slowest episode counts the attempts that the infrastructure fails, and is a mean over 16 batches",
    "the map is of half of the cluster with half of a batch, and retention of a quarter of each, over fewer steps",
    "oversubscription is demand / KV capacity, where demand is what episodes hold that keep the batch busy which the "
    "cluster as given has room for; in retention so many are in flight for every rule, ours included",
    "retention is also compared without host memory, which the plan does not name",
    "the map crosses environment ratio and oversubscription; latency deviation and staleness change alone; its async "
    "baselines are in flight (keep), one step off and over-provision alone, and at K = 0 the barrier with episodes at "
    "their own pace in the place of over-provision",
    "ablations are of three seeds over fewer steps, the latency shock of three seeds",
    "beside longer latencies, outputs four times as long from the same step on: more episodes in flight make up for "
    "latencies without a change of the split",
    "ablations also add each rule of priority as a fourth policy; the plan names three",
    "the planner with a gain threshold is asked at every version, not at every tenth, and knows our rates",
)

CTB: dict[str, Any] = {"kv": "keep", "evicts": "warm", "retention": "break-even", "admission": "law"}
RA2P: dict[str, Any] = {"pipelining": "adaptive"}
ERS: dict[str, Any] = {"elasticity": "rates"}
POLICIES = {"ctb": CTB, "ra2p": RA2P, "ers": ERS}
PRIORITIES = ("value", "longest", "switch")
"""Rules of who goes first, beside that of the oldest."""
OURS = Strategy(**CTB, **RA2P, **ERS)


def changed(strategy: Strategy, **values: Any) -> Strategy:
    return strategy.model_copy(update=values)
