"""Does the quickstart learn, and is it reinforcement learning that learns?

    python benchmarks/learning.py --json

For each seed: the quickstart recipe as it is (warm start, then RL), two controls and one variant. *Imitation* goes on
with supervised steps for at least the time that RL took, on demonstrations it sees once. *Shuffled* is the same RL with
the rewards of every step permuted among its episodes. *Async* is the same recipe with rollout and training overlapped
(K = 1), for equal samples. All are evaluated on the same unseen-seed tasks, sampled at temperature 1 (L0).
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.report import finish, machine, parser, say, table
from springtide.config import Recipe
from springtide.environments.source import open_environments
from springtide.evaluation.count import Count, pooled
from springtide.evaluation.statistics import wilson
from springtide.launch.customize import Customize
from springtide.launch.train import train
from springtide.recipe import dump_recipe, load_recipe
from springtide.telemetry.jsonl import read_metrics, series
from springtide.telemetry.run_folder import RunFolder
from springtide.training.batch import Batch
from springtide.training.trainer import TorchTrainer

CEILING_SAMPLE = 4096
"""Demonstrations of each seed whose own success is counted."""

IMITATION_MARGIN = 1.25
"""More supervised steps than the warm start's pace says fit into RL's time, so that imitation never gets less."""


def run(recipe: Recipe, root: Path, name: str, *, shuffle: int | None = None) -> dict[str, Any]:
    """One run to its end; what it came to and how long its parts took."""
    folder = RunFolder.create(name=name, recipe_text=dump_recipe(recipe), path=root / name)

    def shuffled(trainer: TorchTrainer) -> None:
        if shuffle is not None:
            luck = random.Random(shuffle)
            trainer.stages = trainer.stages.wrap("tokens", lambda stage: lambda groups: permuted(stage(groups), luck))

    began = time.monotonic()
    result = train(recipe=recipe, folder=folder, customize=Customize(trainer=shuffled))
    seconds = time.monotonic() - began
    records = list(read_metrics(folder.metrics))
    warm = dict(series(records, "warm_start/seconds"))
    last = [record for record in records if "train/loss" in record.metrics or "warm_start/loss" in record.metrics][-1]
    ledger = {name: value for name, value in last.metrics.items() if name.startswith("ledger/")}
    return {
        "name": name,
        "seconds": seconds,
        "load": os.getloadavg(),
        "before": result.before,
        "after": result.after,
        "goodput_tokens_per_s": result.goodput_tokens_per_s,
        "staleness_max": max((value for _, value in series(records, "staleness/max")), default=0.0),
        "unattributed_max": max(
            (value for name, value in last.metrics.items() if name.endswith("unattributed_share")), default=0.0
        ),
        "rewards": series(records, "reward/mean"),
        "evaluations": series(records, "eval/success"),
        "warm_start_seconds": warm.get(0, 0.0),
        "ledger": ledger,
    }


def permuted(batch: Batch, luck: random.Random) -> Batch:
    """The step's rewards, dealt out anew among its valid episodes."""
    rewards = [reward for group in batch.rewards for reward in group if reward is not None]
    luck.shuffle(rewards)
    dealt = iter(rewards)
    return replace(
        batch,
        rewards=tuple(tuple(None if reward is None else next(dealt) for reward in group) for group in batch.rewards),
    )


def imitation(recipe: Recipe, *, rl_seconds: float, warm_seconds: float) -> Recipe:
    """Supervised training only, for at least as long as the warm start and RL took together."""
    pace = recipe.warm_start.steps / warm_seconds
    steps = recipe.warm_start.steps + round(IMITATION_MARGIN * rl_seconds * pace)
    changes = {"steps": steps, "demonstrations": steps * recipe.warm_start.batch_size}
    warm = recipe.warm_start.model_copy(update=changes)
    scheduling = recipe.scheduling.model_copy(update={"steps": 0})
    return recipe.model_copy(update={"warm_start": warm, "scheduling": scheduling})


def ceiling(recipe: Recipe) -> Count:
    source = open_environments(recipe.environment, seed=recipe.seed)
    shown = [source.demonstration(index) for index in range(CEILING_SAMPLE)]
    return Count(sum(one.success for one in shown if one is not None), len(shown))


def seeded(seed: int, options: argparse.Namespace) -> Recipe:
    quick = (
        ["scheduling.steps=4", "evaluation.tasks=32", "evaluation.every=0", "warm_start.steps=20"]
        if options.quick
        else []
    )
    return load_recipe(options.recipe, [f"seed={seed}", *quick, *options.set])


def measure(seeds: Sequence[int], root: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All arms of all seeds, arm by arm, so that what matters most is known first."""
    recipes = {seed: seeded(seed, options) for seed in seeds}
    runs: dict[int, dict[str, Any]] = {seed: {"seed": seed} for seed in seeds}
    for seed, recipe in recipes.items():
        learned = runs[seed]["rl"] = run(recipe, root, f"rl-{seed}")
        say(f"seed {seed}: {shown(learned['before'])}, {shown(learned['after'])} after RL, {learned['seconds']:.0f} s")
    for seed, recipe in recipes.items():
        shuffled = runs[seed]["shuffled"] = run(recipe, root, f"shuffled-{seed}", shuffle=seed)
        say(f"seed {seed}: {shown(shuffled['after'])} after RL on shuffled rewards")
    for seed, recipe in recipes.items():
        learned, warm_seconds = runs[seed]["rl"], runs[seed]["rl"]["warm_start_seconds"]
        longer = imitation(recipe, rl_seconds=learned["seconds"] - warm_seconds, warm_seconds=warm_seconds)
        imitated = runs[seed]["imitation"] = run(longer, root, f"imitation-{seed}")
        imitated["steps"] = longer.warm_start.steps
        say(f"seed {seed}: {shown(imitated['before'])} after {longer.warm_start.steps} supervised steps")
    for seed, recipe in recipes.items():
        overlapped = recipe.scheduling.model_copy(update={"mode": "async", "staleness": 1})
        asynchronous = run(recipe.model_copy(update={"scheduling": overlapped}), root, f"async-{seed}")
        runs[seed]["async"] = asynchronous
        say(f"seed {seed}: {shown(asynchronous['after'])} after RL in async, {asynchronous['seconds']:.0f} s")
    return list(runs.values())


ARMS = {
    "before": ("rl", "before"),
    "after": ("rl", "after"),
    "imitation": ("imitation", "before"),
    "shuffled": ("shuffled", "after"),
    "async": ("async", "after"),
}
"""Which evaluation of which run each figure is."""


def row(name: str, count: Count, seeds: Sequence[Count]) -> list[str]:
    """The interval is over tasks: it says nothing of how training would differ with yet another seed."""
    interval = wilson(count.k, count.n)
    each = ", ".join(f"{one.k}/{one.n}" for one in seeds)
    between = f"{interval.low:.3f} to {interval.high:.3f}"
    return [name, f"{count.k / count.n:.3f}", between, each, str(count.invalid)]


def shown(count: Count | None) -> str:
    return "-" if count is None else f"{count.k}/{count.n}"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--recipe", default="quickstart")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    options = arguments.parse_args()
    seeds = range(options.seed, options.seed + (1 if options.quick else options.seeds))
    with tempfile.TemporaryDirectory() as scratch:
        runs = measure(seeds, Path(scratch), options)
    pools = {name: pooled(run[arm][when] for run in runs) for name, (arm, when) in ARMS.items()}
    limit = pooled(ceiling(seeded(seed, options)) for seed in seeds)
    rows = [row(name, count, [run[ARMS[name][0]][ARMS[name][1]] for run in runs]) for name, count in pools.items()]
    print(table(["held-out tasks", "success", "95 % interval", "each seed", "invalid"], rows))
    print(f"demonstrations that succeed themselves: {limit.k / limit.n:.3f}")
    figures = {name: {"k": count.k, "n": count.n} for name, count in pools.items()}
    figures["imitation_ceiling"] = limit.k / limit.n
    figures["seconds"] = [run["rl"]["seconds"] for run in runs]
    record = {"machine": machine(), "recipe": dump_recipe(seeded(options.seed, options)), "runs": runs}
    finish("learning", figures=figures, record=plain(record), options=options)


def plain(value: Any) -> Any:
    if isinstance(value, Count):
        return {"k": value.k, "n": value.n, "invalid": value.invalid}
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    main()
