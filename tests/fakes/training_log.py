"""Logs of runs as they look: noisy rewards of few groups, entropy that wanders, gradients that are 0 by chance.

`healthy` gives a run that learns; `sick` the same with one thing that goes wrong from `onset` on, by a `dose` from 0
to 1."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from springtide.diagnosis.frame import Frame, Series

Floats = NDArray[np.float64]
Metrics = dict[str, Floats]


def frame(
    metrics: Mapping[str, Floats], *, every: int = 1, settings: Mapping[str, object] | None = None, **more
) -> Frame:
    series = {}
    for name, values in metrics.items():
        values = np.asarray(values, dtype=float)
        gap = every * 10 if name.startswith("eval/") else every
        steps = every + np.arange(len(values), dtype=np.int64) * gap
        series[name] = Series(name, name, steps, values, window=every)
    rows = max((len(each) for each in metrics.values()), default=0)
    return Frame(Path("run"), "trl", series, settings=dict(settings or {}), rows=rows, **more)


def cut(of: Frame, step: int) -> Frame:
    """The run as it was at a step."""
    series = {
        name: Series(name, name, each.steps[each.steps <= step], each.values[each.steps <= step], window=each.window)
        for name, each in of.series.items()
    }
    return Frame(of.source, of.framework, series, settings=of.settings, rows=of.rows)


def wander(rng: np.random.Generator, count: int, spread: float, memory: float = 0.7) -> Floats:
    """Noise that remembers: its values have a standard deviation of `spread`."""
    found, now = np.zeros(count), rng.normal()
    for at in range(count):
        now = memory * now + np.sqrt(1 - memory**2) * rng.normal()
        found[at] = spread * now
    return found


def healthy(
    rng: np.random.Generator,
    count: int = 150,
    *,
    first: float = 0.3,
    last: float = 0.8,
    groups: int = 8,
    size: int = 8,
    length: float = 250.0,
    entropy: float = 0.4,
) -> Metrics:
    """A run whose success goes from `first` to `last`."""
    progress = np.arange(count) / max(count - 1, 1)
    success = first + (last - first) * progress ** rng.uniform(0.4, 1.0)
    return metrics_of(rng, success, groups=groups, size=size) | {
        "completion/length": length * (1 + 0.2 * rng.uniform(-1, 1) * progress) * np.exp(wander(rng, count, 0.06)),
        "completion/truncated": np.clip(rng.binomial(groups * size, 0.02, count) / (groups * size), 0, 1),
        "train/entropy": entropy * (1 - 0.5 * progress) * np.exp(wander(rng, count, 0.12)),
        "train/grad_norm": 0.3 * np.exp(rng.normal(0, 0.5, count)),
        "train/reference_kl": 0.05 * progress * np.exp(wander(rng, count, 0.2)),
        "train/clip_fraction": np.abs(rng.normal(0.01, 0.005, count)),
        "train/learning_rate": np.full(count, 1e-6),
        "train/loss": rng.normal(0, 0.02, count),
        "mismatch/logp_difference": 0.008 * np.exp(wander(rng, count, 0.15)),
        "train/behaviour_kl": 0.0006 * np.exp(wander(rng, count, 0.3)),
        "train/importance_mean": 1 + rng.normal(0, 0.01, count),
        "step/seconds": 40 * np.exp(wander(rng, count, 0.08)),
        "invalid/rate": np.zeros(count),
        "eval/success": np.clip(success[::10] + rng.normal(0, 0.02, len(success[::10])), 0, 1),
    }


def metrics_of(rng: np.random.Generator, success: Floats, *, groups: int, size: int) -> Metrics:
    """What rewards of groups of tasks of all kinds come to, where the policy succeeds in a share of `success`."""
    names = ("reward/mean", "reward/std", "train/zero_advantage_groups", "groups/all_right", "groups/all_wrong")
    rows = []
    for share in np.clip(success, 0, 1):
        inside = min(max(float(share), 1e-3), 1 - 1e-3)
        chances = rng.beta(2 * inside, 2 * (1 - inside), groups) if 0 < share < 1 else np.full(groups, share)
        right = rng.binomial(size, chances) / size
        spread = np.sqrt(right * (1 - right))
        rows.append((right.mean(), spread.mean(), (spread == 0).mean(), (right == 1).mean(), (right == 0).mean()))
    found = dict(zip(names, np.array(rows).T, strict=True))
    return found | {"reward/success": found["reward/mean"]}


def ramp(count: int, onset: int, width: int) -> Floats:
    """0 before the onset, 1 from `width` later on."""
    return np.clip((np.arange(count) - onset) / max(width, 1), 0, 1)


def _collapse(rng: np.random.Generator, run: Metrics, onset: int, dose: float, width: int, **shape) -> Metrics:
    count = len(run["reward/mean"])
    success = np.interp(np.arange(count), [0, onset, count], [0.4, 0.7, 0.75]) * (1 - ramp(count, onset, width) * dose)
    return run | metrics_of(rng, success, **shape) | {"eval/success": success[::10]}


Sick = Callable[[np.random.Generator, Metrics, int, float], Metrics]


def length_runaway(rng: np.random.Generator, run: Metrics, onset: int, dose: float) -> Metrics:
    """Completions grow first, and then the reward is lost."""
    count = len(run["reward/mean"])
    on = ramp(count, onset, 20)
    found = _collapse(rng, run, onset + 12, dose, 15, groups=8, size=8)
    return found | {
        "completion/length": np.minimum(run["completion/length"] * (1 + 2 * on * dose), 512),
        "completion/truncated": np.clip(run["completion/truncated"] + on * dose * 0.95, 0, 1),
    }


def entropy_explosion(rng: np.random.Generator, run: Metrics, onset: int, dose: float) -> Metrics:
    count = len(run["reward/mean"])
    found = _collapse(rng, run, onset + 8, dose, 20, groups=8, size=8)
    return found | {"train/entropy": run["train/entropy"] * (1 + 12 * ramp(count, onset, 25) * dose)}


def length_collapse(rng: np.random.Generator, run: Metrics, onset: int, dose: float) -> Metrics:
    count = len(run["reward/mean"])
    found = _collapse(rng, run, onset, dose, 6, groups=8, size=8)
    return found | {"completion/length": run["completion/length"] * (1 - 0.98 * ramp(count, onset, 4) * dose)}


def stale_weights(rng: np.random.Generator, run: Metrics, onset: int, dose: float) -> Metrics:
    """The engine stays where it was at `onset`; the reward no longer moves."""
    count = len(run["reward/mean"])
    since = np.maximum(np.arange(count) - onset, 0) * dose
    share = np.interp(np.arange(count), [0, onset, count], [0.3, 0.4, 0.4])
    return (
        run
        | metrics_of(rng, share, groups=8, size=8)
        | {
            "eval/success": share[::10],
            "mismatch/logp_difference": run["mismatch/logp_difference"] + 0.004 * since,
            "train/behaviour_kl": run["train/behaviour_kl"] * (1 + since) + 0.0015 * since,
            "train/importance_mean": 1 + rng.normal(0, 0.01, count) - 0.001 * since,
        }
    )


def temperature_mismatch(rng: np.random.Generator, run: Metrics, onset: int, dose: float) -> Metrics:
    """From the first step on."""
    count = len(run["reward/mean"])
    gap = 0.05 + 0.3 * dose
    share = np.full(count, 0.35)
    return (
        run
        | metrics_of(rng, share, groups=8, size=8)
        | {
            "eval/success": share[::10],
            "mismatch/logp_difference": gap * np.exp(wander(rng, count, 0.1)),
            "train/behaviour_kl": 0.4 * gap * np.exp(wander(rng, count, 0.1)),
            "train/importance_mean": np.exp(gap) * np.exp(rng.normal(0, 0.03, count)),
        }
    )


def reward_zero(rng: np.random.Generator, run: Metrics, onset: int, dose: float) -> Metrics:
    count = len(run["reward/mean"])
    return (
        run
        | metrics_of(rng, np.zeros(count), groups=8, size=8)
        | {"train/grad_norm": np.zeros(count), "eval/success": np.full(len(run["eval/success"]), 0.3)}
    )


def hacked(rng: np.random.Generator, run: Metrics, onset: int, dose: float) -> Metrics:
    """The reward rises, and held-out success falls."""
    count = len(run["reward/mean"])
    on = ramp(count, onset, 40)
    share = np.interp(np.arange(count), [0, onset], [0.3, 0.4]) + on * (0.3 + 0.3 * dose)
    held_out = np.interp(np.arange(count), [0, onset], [0.3, 0.4]) * (1 - 0.8 * dose * on)
    return (
        run
        | metrics_of(rng, share, groups=8, size=8)
        | {
            "completion/length": run["completion/length"] * (1 - 0.6 * on * dose),
            "eval/success": np.clip(held_out[::10] + rng.normal(0, 0.02, len(held_out[::10])), 0, 1),
        }
    )


def length_paid(rng: np.random.Generator, run: Metrics, onset: int, dose: float) -> Metrics:
    """The reward is success plus a share of the length."""
    count = len(run["reward/mean"])
    grown = 1 + (1 + 2 * dose) * ramp(count, onset, 60)
    length = run["completion/length"] * grown
    share = np.full(count, 0.3)
    found = run | metrics_of(rng, share, groups=8, size=8)
    return found | {
        "completion/length": length,
        "reward/mean": found["reward/mean"] + dose * length / length.max(),
        "eval/success": np.clip(share[::10] + rng.normal(0, 0.02, len(share[::10])), 0, 1),
    }


def environment_failing(rng: np.random.Generator, run: Metrics, onset: int, dose: float) -> Metrics:
    """In some steps many episodes fail, and count as wrong."""
    count = len(run["reward/mean"])
    failures = np.where(rng.random(count) < 0.4, rng.uniform(0.2, 0.3 + 0.6 * dose, count), 0.0)
    failures *= np.arange(count) >= onset
    share = np.interp(np.arange(count), [0, count], [0.5, 0.6]) * (1 - failures)
    return run | metrics_of(rng, share, groups=16, size=8) | {"environment/failures": failures}


SICK: dict[str, tuple[Sick, str]] = {
    "length runaway": (length_runaway, "no-eos"),
    "entropy explosion": (entropy_explosion, "entropy-bonus-too-strong"),
    "length collapse": (length_collapse, ""),
    "stale weights": (stale_weights, "stale-weights"),
    "temperature": (temperature_mismatch, "temperature-mismatch"),
    "reward zero": (reward_zero, "reward-always-zero"),
    "hacked": (hacked, "hacked-verifier"),
    "length paid": (length_paid, "length-paying-reward"),
    "failures scored": (environment_failing, "infrastructure-failures-scored"),
}
"""What goes wrong, and the cause that has to be among the first, if the log can tell."""
