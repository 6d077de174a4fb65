"""Does an agent learn as well when KV is kept, or refreshed, over weight updates as when it is computed again?

For each seed: sync, and async (K = 1) with KV recomputed, kept and refreshed; equal samples, tasks, warm start and
evaluation. The task is the word game with replies that take about a tenth of a second, so that episodes pause while
weights change. Arms take turns seed by seed; all are evaluated on the same held-out tasks at temperature 1 (L0).
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.report import machine, say, table
from springtide.config import Recipe
from springtide.evaluation.count import Count, pooled
from springtide.evaluation.statistics import wilson
from springtide.launch.train import train
from springtide.recipe import dump_recipe, load_recipe
from springtide.telemetry.jsonl import read_metrics, series
from springtide.telemetry.run_folder import RunFolder

ENVIRONMENT = Path(__file__).resolve().parent / "paced_words.py:PacedWords"
TASKS = 512
"""Held-out tasks of each run."""

COMMON = (
    'environment.type="custom"',
    f'environment.path="{ENVIRONMENT}"',
    "environment.options={level = 3, flaw_rate = 0.6, median = 0.1, shape = 0.8}",
    "warm_start.steps=250",
    "scheduling.steps=40",
    "evaluation.every=0",
    f"evaluation.tasks={TASKS}",
    "checkpoint.every=1000",
)
ASYNC = ('scheduling.mode="async"', "scheduling.staleness=1")
ARMS = {
    "sync": (),
    "async, recompute": (*ASYNC, 'engine.kv_at_update="recompute"'),
    "async, keep": (*ASYNC, 'engine.kv_at_update="keep"'),
    "async, refresh": (*ASYNC, 'engine.kv_at_update="refresh"'),
}
PROBE_SHARE = 0.1
"""More than the default, as these runs are short."""

LAST = (
    "engine/hit_rate",
    "engine/reprefilled",
    "engine/refreshed",
    "engine/reused",
    "engine/decoded",
    "engine/probed",
    "engine/probe_difference",
    "engine/probe_kl",
    "engine/kv_trusted",
    "ledger/engine/refresh",
    "ledger/engine/probe",
    "ledger/engine/generate",
)
"""Running totals and means, of which the last one counts."""


def seeded(arm: str, seed: int, options: argparse.Namespace) -> Recipe:
    quick = ["scheduling.steps=3", "warm_start.steps=100", "evaluation.tasks=32"] if options.quick else []
    return load_recipe("word-game", [f"seed={seed}", f"engine.probe_share={PROBE_SHARE}", *COMMON, *ARMS[arm], *quick])


def run(recipe: Recipe, root: Path, name: str) -> dict[str, Any]:
    """One run to its end: held-out counts, and what its engine and trainer said."""
    folder = RunFolder.create(name="run", recipe_text=dump_recipe(recipe), path=root / name)
    began = time.monotonic()
    result = train(recipe=recipe, folder=folder)
    records = list(read_metrics(folder.metrics))
    # Steps in which no group carries a signal have no importance weights; a quick run may have no others.
    ess = [value for _, value in series(records, "train/ess")] or [1.0]
    last = {name: values[-1][1] for name in LAST if (values := series(records, name))}
    return {
        "name": name,
        "seconds": time.monotonic() - began,
        "load": os.getloadavg(),
        "before": result.before,
        "after": result.after,
        "ess_mean": sum(ess) / len(ess),
        "ess_low": min(ess),
        "behaviour_kl": _mean(records, "train/behaviour_kl"),
        "staleness": _mean(records, "staleness/mean"),
        "rewards": series(records, "reward/mean"),
        "engine": last,
    }


def _mean(records: Sequence[Any], name: str) -> float:
    values = [value for _, value in series(records, name)]
    return sum(values) / max(1, len(values))


def parity(options: argparse.Namespace) -> dict[str, Any]:
    """All arms of all seeds. `figures`: per arm what its seeds came to together; `runs`: each."""
    started = machine()
    seeds = range(options.seed, options.seed + (1 if options.quick else 3))
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in seeds:
            for arm in ARMS:
                one = run(seeded(arm, seed, options), Path(scratch), f"{arm.replace(', ', '-')}-{seed}")
                runs[arm].append(one)
                say(f"seed {seed}, {arm}: {shown(one['before'])}, then {shown(one['after'])}, {one['seconds']:.0f} s")
    reference = interval(pooled(one["after"] for one in runs["sync"]))
    found = {arm: summary(each, reference) for arm, each in runs.items()}
    return {"figures": {"learning_parity": found}, "machine": started, "runs": plain(runs)}


def summary(runs: Sequence[dict[str, Any]], reference: tuple[float, float]) -> dict[str, Any]:
    """`within`: whether the success lies in the 95 % interval of the sync runs (over tasks, not over seeds).
    `over_old_kv`: share of tokens sampled over KV of an earlier version, as the probed turns say.
    """
    after = pooled(one["after"] for one in runs)
    success = after.k / after.n
    found: dict[str, Any] = {
        "before": plain(pooled(one["before"] for one in runs)),
        "after": plain(after),
        "success": success,
        "interval": interval(after),
        "within": reference[0] <= success <= reference[1],
        "ess_mean": sum(one["ess_mean"] for one in runs) / len(runs),
        "ess_low": min(one["ess_low"] for one in runs),
        "behaviour_kl": sum(one["behaviour_kl"] for one in runs) / len(runs),
        "seconds": [one["seconds"] for one in runs],
    }
    found |= {name: sum(one["engine"].get(name, 0.0) for one in runs) for name in LAST if not _is_mean(name)}
    probed = found["engine/probed"]
    for name in ("engine/probe_difference", "engine/probe_kl"):
        total = sum(one["engine"].get(name, 0.0) * one["engine"].get("engine/probed", 0.0) for one in runs)
        found[name] = total / probed if probed else None
    presented = found["engine/reused"] + found["engine/reprefilled"]
    found["hit_rate"] = found["engine/reused"] / presented if presented else 1.0
    found["over_old_kv"] = probed / PROBE_SHARE / found["engine/decoded"]
    found["trusted_to_the_end"] = all(one["engine"].get("engine/kv_trusted", 1.0) == 1.0 for one in runs)
    return found


def _is_mean(name: str) -> bool:
    return name in ("engine/hit_rate", "engine/probe_difference", "engine/probe_kl", "engine/kv_trusted")


def interval(count: Count) -> tuple[float, float]:
    found = wilson(count.k, count.n)
    return found.low, found.high


def shown(count: Count | None) -> str:
    return "-" if count is None else f"{count.k}/{count.n}"


def plain(value: Any) -> Any:
    if isinstance(value, Count):
        return {"k": value.k, "n": value.n, "invalid": value.invalid}
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def report(part: dict[str, Any]) -> str:
    """The table."""
    rows, runs = [], part["runs"]
    for arm, found in part["figures"]["learning_parity"].items():
        low, high = found["interval"]
        kl, difference = found["engine/probe_kl"], found["engine/probe_difference"]
        rows.append(
            [
                arm,
                f"{found['success']:.3f}",
                f"{low:.3f} to {high:.3f}",
                ", ".join(str(one["after"]["k"]) for one in runs[arm]),
                "yes" if found["within"] else "no",
                f"{found['ess_mean']:.4f}",
                f"{found['behaviour_kl']:.1e}",
                f"{found['over_old_kv']:.3f}",
                "-" if kl is None else f"{kl:.1e}",
                "-" if difference is None else f"{difference:.1e}",
                f"{found['hit_rate']:.4f}",
                f"{found['engine/refreshed']:.0f}",
            ]
        )
    header = ["arm", "success", "95 % interval", "each seed", "within sync's", "ESS", "behaviour KL"]
    return table([*header, "over old KV", "probe KL", "probe |d|", "hit rate", "refreshed"], rows)
