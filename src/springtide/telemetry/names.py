"""The canonical names of all numbers that a run reports: `area/what`, lower case, one unit and one meaning each.

A name with `<part>` stands for a family. Sinks accept any name; this list is what documents, plots and tools rely on.
"""

import re
from functools import cache

import msgspec


class Metric(msgspec.Struct, frozen=True):
    name: str
    unit: str
    meaning: str


METRICS = (
    Metric("train/loss", "", "Loss of the train step, token mean over the global batch."),
    Metric("train/entropy", "nats", "Mean entropy of the sampling distribution at trained tokens."),
    Metric("train/grad_norm", "", "Gradient norm before clipping."),
    Metric("train/learning_rate", "", "Learning rate of the step."),
    Metric("train/clip_fraction", "share", "Trained tokens whose ratio was clipped."),
    Metric("train/ratio_mean", "", "Mean probability ratio of the updated to the proximal policy at trained tokens."),
    Metric("train/ratio_max", "", "Largest probability ratio at trained tokens."),
    Metric("train/importance_mean", "", "Mean importance weight between sampling and training policy, before its cap."),
    Metric("train/importance_max", "", "Largest importance weight before its cap."),
    Metric("train/importance_capped", "share", "Trained tokens whose importance weight reached the cap."),
    Metric("train/behaviour_kl", "nats", "KL estimate (k3) from the policy that sampled to the one that trains."),
    Metric("train/reference_kl", "nats", "KL estimate (k3) from the policy to the reference."),
    Metric("train/behaviour_nll", "nats", "Mean negative log-prob of the trained tokens when they were sampled."),
    Metric("train/ess", "share", "Effective sample size of the importance weights, per token."),
    Metric("train/outside_support", "share", "Trained tokens outside what the policy's truncation now keeps."),
    Metric("train/updates", "updates", "Optimizer updates applied in the step."),
    Metric("train/skipped_updates", "updates", "Updates skipped because the gradient was not finite."),
    Metric("train/weights_changed", "", "1 where the step changed what is served, 0 where it left all weights alone."),
    Metric("train/computed_tokens", "tokens", "Targets that went through the model in the step."),
    Metric("train/padded_tokens", "tokens", "The same with padding."),
    Metric("train/invalid_members", "episodes", "Members of the step's groups without a verdict; they had no vote."),
    Metric("train/tokens", "tokens", "Sampled, unmasked tokens of valid members in the step."),
    Metric("train/zero_advantage_tokens", "tokens", "Those of them whose group carried no signal."),
    Metric("train/zero_advantage_groups", "share", "Groups of the step that carried no signal."),
    Metric("advantage/mean", "", "Mean advantage of the trained tokens."),
    Metric("advantage/min", "", "Smallest advantage of an episode of the step."),
    Metric("advantage/max", "", "Largest advantage of an episode of the step."),
    Metric("mismatch/logp_difference", "nats", "Mean absolute difference of the trainer's and the engine's log-probs."),
    Metric("mismatch/logp_difference_max", "nats", "The largest such difference; 20 stands for all that is above."),
    Metric("mismatch/probability_difference", "", "Mean absolute difference of the probabilities themselves."),
    Metric("mismatch/error_factor", "", "Mean factor between the two probabilities, at least 1."),
    Metric("warm_start/loss", "", "Supervised loss, token mean over the batch."),
    Metric("warm_start/accuracy", "share", "Imitated tokens that the model would have chosen greedily."),
    Metric("warm_start/tokens", "tokens", "Imitated tokens of the batch."),
    Metric("warm_start/grad_norm", "", "Gradient norm before clipping."),
    Metric("warm_start/skipped_updates", "updates", "Steps so far that were skipped: the gradient was not finite."),
    Metric("warm_start/learning_rate", "", "Learning rate of the supervised step."),
    Metric(
        "warm_start/demonstration_success", "share", "Of the demonstrations themselves; imitation reaches about that."
    ),
    Metric("warm_start/seconds", "s", "Wall time of the warm start."),
    Metric("reward/mean", "", "Mean reward of the valid members that the step trained on."),
    Metric("reward/standard_error", "", "Standard error of that mean."),
    Metric("reward/success", "share", "Valid members of the step whose reward counts as a success."),
    Metric("reward/std", "", "Standard deviation of rewards within a group, mean over the step's groups."),
    Metric("groups/all_right", "share", "Groups of the step all of whose valid members succeed."),
    Metric("groups/all_wrong", "share", "Groups of the step none of whose valid members succeeds."),
    Metric("completion/length", "tokens", "Mean sampled tokens of a turn."),
    Metric("completion/length_min", "tokens", "Shortest turn of the step."),
    Metric("completion/length_max", "tokens", "Longest turn of the step."),
    Metric("completion/terminated_length", "tokens", "Mean sampled tokens of the turns that ended by themselves."),
    Metric("completion/truncated", "share", "Turns that a limit of length cut off."),
    Metric("completion/unique", "share", "Different episodes of a group, by what was sampled, mean over groups."),
    Metric("eval/success", "share", "Successes among valid held-out episodes."),
    Metric("eval/successes", "episodes", "Held-out episodes that succeeded."),
    Metric("eval/valid", "episodes", "Held-out episodes with a verdict."),
    Metric("eval/invalid", "episodes", "Held-out episodes without a verdict; in no rate."),
    Metric(
        "rollout/goodput_tokens_per_s",
        "tokens/s",
        "Trained tokens of valid members per wall second, start-up excluded.",
    ),
    Metric("rollout/zero_advantage_tokens_per_s", "tokens/s", "The part of goodput whose groups carried no signal."),
    Metric("rollout/turns", "turns", "Mean turns of the step's episodes."),
    Metric("rollout/tokens", "tokens", "Mean sampled tokens of the step's episodes."),
    Metric("rollout/episode_seconds", "s", "Mean wall time of the step's episodes."),
    Metric("staleness/mean", "versions", "Mean staleness of the step's groups."),
    Metric("staleness/max", "versions", "Largest staleness of the step's groups."),
    Metric("invalid/rate", "share", "Episodes that ended without a verdict, of all that ended since the last step."),
    Metric("invalid/version_rate", "share", "The same of all that ended while the version of this step served."),
    Metric("groups/filtered", "groups", "Groups that dynamic sampling set aside since the last step."),
    Metric("groups/expired", "groups", "Groups that ran out of deadlines or valid members since the last step."),
    Metric("engine/prefilled", "tokens", "Tokens computed for the first time, running total."),
    Metric("engine/reprefilled", "tokens", "Re-presented tokens that had to be computed again, running total."),
    Metric("engine/reused", "tokens", "Re-presented tokens served from KV, running total."),
    Metric("engine/refreshed", "tokens", "Tokens of paused sessions computed again under new weights, running total."),
    Metric("engine/probed", "tokens", "Tokens sampled over old KV that the probe scored with fresh KV, running total."),
    Metric("engine/probe_difference", "nats", "Mean absolute difference of their log-probs to those over fresh KV."),
    Metric("engine/probe_kl", "nats", "KL estimate (k3) per such token from sampling over kept to over fresh KV."),
    Metric("engine/kv_trusted", "", "1 while KV of earlier versions may be sampled over, 0 above the budget."),
    Metric("engine/decoded", "tokens", "Tokens sampled, running total."),
    Metric("engine/hit_rate", "share", "reused / (reused + reprefilled)."),
    Metric("engine/hot_tokens", "tokens", "Tokens whose KV is hot."),
    Metric("engine/warm_tokens", "tokens", "Tokens whose KV is in host memory."),
    Metric("engine/preemptions", "times", "Sequences put aside for lack of capacity, running total."),
    Metric("step/seconds", "s", "Wall time from one train step to the next."),
    Metric(
        "costs/<coefficient>",
        "s",
        "What a unit of work takes as fitted so far, by the names of the service costs; training_attention is a share.",
    ),
    Metric("ledger/<lane>/<bin>", "s", "Wall seconds that the lane spent in the bin, running total."),
    Metric("ledger/<lane>/unattributed_share", "share", "Share of the lane's lifetime that nobody named."),
    Metric("environment/<metric>", "", "Mean of a number that the environment reports about its episodes."),
)


COSTS = "costs/"


def cost_name(coefficient: str) -> str:
    return COSTS + coefficient


def ledger_name(lane: str, bin_name: str) -> str:
    return f"ledger/{lane}/{bin_name}"


def parse_ledger_name(name: str) -> tuple[str, str] | None:
    """Lane and bin of a ledger metric; None for any other name."""
    parts = name.split("/")
    if len(parts) != 3 or parts[0] != "ledger" or parts[2] == "unattributed_share":
        return None
    return parts[1], parts[2]


def describe(name: str) -> Metric | None:
    """What a reported name means; None if it is not canonical. The more specific entry wins."""
    matches = [metric for metric in METRICS if _pattern(metric.name).fullmatch(name)]
    return min(matches, key=lambda metric: metric.name.count("<"), default=None)


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"<\w+>", r"[^/]+", name))
