"""What the groups of a train step say by themselves: rewards, signal, what was sampled and how it ended.

Only valid members speak, as they do in training. A metric that the step has no data for is left out.
"""

from collections.abc import Collection, Iterable, Sequence

from springtide.core.group import Group
from springtide.core.outcome import Valid
from springtide.core.segment import Segment
from springtide.core.trajectory import Trajectory


def staleness(group: Group, version: int) -> int:
    """Of the oldest unmasked token, where the step that trains on it starts from `version`."""
    oldest = [member.oldest_version for member in group.valid_members if member.oldest_version is not None]
    return version - min(oldest, default=version)


def reward_metrics(groups: Sequence[Group], success_reward: float) -> dict[str, float]:
    rewards = [reward for group in groups for reward in _rewards(group)]
    return {
        "reward/mean": mean(rewards),
        "reward/standard_error": (_variance(rewards) / max(len(rewards), 1)) ** 0.5,
        "reward/success": mean([float(reward >= success_reward) for reward in rewards]),
    }


def signal_metrics(groups: Sequence[Group], success_reward: float) -> dict[str, float]:
    """Where groups of the step stand: nothing is learned from those at either end."""
    graded = [rewards for group in groups if (rewards := _rewards(group))]
    compared = [_variance(rewards) ** 0.5 for rewards in graded if len(rewards) > 1]
    found = {} if not compared else {"reward/std": mean(compared)}
    if graded:
        right = [sum(reward >= success_reward for reward in rewards) for rewards in graded]
        found["groups/all_right"] = mean([float(r == len(g)) for r, g in zip(right, graded, strict=True)])
        found["groups/all_wrong"] = mean([float(r == 0) for r in right])
    return found


def completion_metrics(groups: Sequence[Group], stop_tokens: Collection[int]) -> dict[str, float]:
    """Of the sampled turns. One that does not end with its first stop token is cut off, also where sampling went past
    one; nothing is said of that without `stop_tokens`."""
    turns = [turn for group in groups for member in group.valid_members for turn in _turns(member)]
    if not turns:
        return {}
    lengths = [len(turn.tokens) for turn in turns]
    found = {
        "completion/length": mean(lengths),
        "completion/length_min": float(min(lengths)),
        "completion/length_max": float(max(lengths)),
        "completion/unique": mean([_distinct(group.valid_members) for group in groups if group.valid_members]),
    }
    if stop_tokens:
        ended = [len(turn.tokens) for turn in turns if _ended(turn.tokens, stop_tokens)]
        found["completion/truncated"] = 1.0 - len(ended) / len(turns)
        found |= {"completion/terminated_length": mean(ended)} if ended else {}
    return found


def environment_metrics(groups: Sequence[Group]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for group in groups:
        for member in group.members:
            if isinstance(member.outcome, Valid):
                for name, value in member.outcome.metrics.items():
                    values.setdefault(f"environment/{name}", []).append(value)
    return {name: mean(numbers) for name, numbers in sorted(values.items())}


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _rewards(group: Group) -> list[float]:
    return [member.reward for member in group.members if member.reward is not None]


def _variance(values: Sequence[float]) -> float:
    average = mean(values)
    return sum((value - average) ** 2 for value in values) / max(len(values) - 1, 1)


def _turns(member: Trajectory) -> Iterable[Segment]:
    return (segment for segment in member.segments if segment.sampled and segment.tokens)


def _ended(tokens: tuple[int, ...], stop_tokens: Collection[int]) -> bool:
    return tokens[-1] in stop_tokens and not any(stop in tokens[:-1] for stop in stop_tokens)


def _distinct(members: Sequence[Trajectory]) -> float:
    """Members that sampled what no other before them did, as a share."""
    return len({tuple(turn.tokens for turn in _turns(member)) for member in members}) / len(members)
