"""Small runs with one known fault each, and healthy ones: what a diagnosis is measured by.

    python benchmarks/sick_runs.py

plays what `sick_support/plan.toml` lists and the results lack, one run after the other, each in well under two minutes
on one core, and keeps what it logged in `results/sick_runs`. Interrupted, it goes on where it was. `--only TEXT` takes
the runs whose name holds the text; `--again` plays also what is there. `--table` plays nothing and shows what there is.
Half of the runs, with other doses and other seeds, is held out: rules are tuned on the other half (see
`sick_support/plan.py`). There is no critic in the project yet, so no run with a useless one.
"""

import argparse
import json
import logging
import sys
import tempfile
import time
import traceback
from pathlib import Path

from common.report import parser, say, table
from sick_support.plan import PlannedRun, load_plan, runs
from sick_support.results import FOLDER, Entry, keep, log_path, read_index, summary, write_index
from springtide.config import Recipe
from springtide.launch.train import train
from springtide.recipe import dump_recipe
from springtide.telemetry.run_folder import RunFolder

QUICK_STEPS = 3
HEADER = ["run", "half", "dose", "reward: first > best > last", "held out", "s"]


def play(run: PlannedRun, root: Path, *, quick: bool = False) -> Entry:
    """One run to its end, and what is kept of it."""
    recipe = run.recipe()
    if quick:
        recipe = shortened(recipe)
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder.create(name=recipe.name, recipe_text=dump_recipe(recipe), path=Path(scratch) / "run")
        began = time.monotonic()
        train(recipe=recipe, folder=folder, customize=run.customize())
        return keep(run, folder, time.monotonic() - began, root)


def shortened(recipe: Recipe) -> Recipe:
    warm = recipe.warm_start.model_copy(update={"steps": 5, "demonstrations": 64})
    scheduling = recipe.scheduling.model_copy(update={"steps": QUICK_STEPS})
    evaluation = recipe.evaluation.model_copy(update={"tasks": 8})
    return recipe.model_copy(update={"warm_start": warm, "scheduling": scheduling, "evaluation": evaluation})


def play_all(wanted: list[PlannedRun], root: Path, *, quick: bool) -> list[str]:
    """Names of runs that failed. The index is written after each run."""
    failed = []
    began = time.monotonic()
    for number, run in enumerate(wanted, 1):
        try:
            entry = play(run, root, quick=quick)
        except Exception:
            failed.append(run.name)
            say(f"{number}/{len(wanted)} {run.name} failed:\n{traceback.format_exc()}")
            continue
        write_index([*(other for other in read_index(root) if other.name != run.name), entry], root)
        left = (time.monotonic() - began) / number * (len(wanted) - number)
        rewards = f"reward {entry.reward_first:.2f} > {entry.reward_best:.2f} > {entry.reward_last:.2f}"
        say(f"{number}/{len(wanted)} {run.name}: {rewards}, {entry.seconds:.0f} s; {left / 60:.0f} min to go")
    return failed


def choose(options: argparse.Namespace, root: Path) -> list[PlannedRun]:
    """In the order of the plan, less what is in the results."""
    have = {entry.name for entry in read_index(root) if log_path(entry.name, root).exists()}
    return [
        run
        for run in runs(load_plan())
        if all(text in run.name for text in options.only) and (options.again or run.name not in have)
    ]


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--only", action="append", default=[], metavar="TEXT", help="runs whose name holds it")
    arguments.add_argument("--again", action="store_true", help="also runs that are in the results")
    arguments.add_argument("--table", action="store_true", help="play nothing, show what is there")
    options = arguments.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) if options.quick else FOLDER
        wanted = choose(options, root)[: 3 if options.quick else None]
        failed = [] if options.table else play_all(wanted, root, quick=options.quick)
        entries = read_index(root)
    print(table(HEADER, [summary(entry) for entry in entries if all(text in entry.name for text in options.only)]))
    if options.json:
        sick = [entry for entry in entries if entry.cause]
        figures = {
            "sick_runs": len(sick),
            "healthy_runs": len(entries) - len(sick),
            "causes": len({entry.cause for entry in sick}),
            "seconds": round(sum(entry.seconds for entry in entries), 1),
            "failed": failed,
        }
        print(json.dumps(figures))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
