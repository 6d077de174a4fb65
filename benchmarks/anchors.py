"""Published measurements of other systems against our simulator (L2).

    python benchmarks/anchors.py --json

Each file in `anchors/` is one published setting, written down before it was first run: workload, hardware, costs,
strategies, the published numbers, and the one constant that is fitted, on one number and on a seed of its own. All
other numbers are predictions. What was changed afterwards stands in a file's list of corrections. Needs no torch.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from anchor_support.anchor import changed, files
from anchor_support.measure import BAR, Measurement
from common.report import finish, machine, parser, say, table

PROCESSES = 2
SEEDS = (0, 1, 2)
QUICK = ("roll-flash", "rollart")


def measured(job: tuple[str, dict[str, Any]], *, seeds: tuple[int, ...]) -> tuple[str, dict[str, Any]]:
    name, text = job
    return name, Measurement(name, text, seeds=seeds).numbers()


def measure(seeds: tuple[int, ...], names: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """Anchors that carry another's constant come when it is known."""
    texts = {name: text for name, text in files().items() if name in names or not names}
    found: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(PROCESSES) as pool:
        task = partial(measured, seeds=seeds)
        for name, result in pool.map(task, [(name, text) for name, text in texts.items() if "carry" not in text]):
            found[name] = result
            say(f"{name}: done")
        later = []
        for name, text in texts.items():
            if "carry" in text:
                (value,) = found[text["carry"]["from"]]["fitted"].values()
                later.append((name, changed(text, text["carry"]["path"], value)))
        found |= dict(pool.map(task, later))
    return {name: found[name] for name in texts}


def rows(found: dict[str, dict[str, Any]]) -> list[tuple[str, ...]]:
    made = []
    for name, anchor in found.items():
        for row in anchor["numbers"]:
            verdict = "yes" if row["reproduced"] else "no"
            made.append(
                (
                    name,
                    row["name"],
                    f"{row['published']:,.4g}",
                    f"{row['simulated']:,.4g} ({row['low']:,.4g} to {row['high']:,.4g})",
                    f"{row['within']:.2f}",
                    verdict if row["predicted"] else "fitted",
                )
            )
    return made


def main() -> None:
    options = parser(__doc__).parse_args()
    record: dict[str, Any] = {"label": "L2", "machine": machine(), "bar": BAR}
    seeds = tuple(options.seed + seed for seed in (SEEDS[:1] if options.quick else SEEDS))
    found = measure(seeds, QUICK if options.quick else ())
    record["anchors"] = found
    record["seeds"] = seeds
    header = ("anchor", "number", "published", "simulated (extremes)", "ratio", f"within {BAR:.0%}")
    print(table(header, rows(found)))
    finish("anchors", figures={"anchors": figures(found)}, record=record, options=options)


def figures(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for anchor in found.values() for row in anchor["numbers"]]


if __name__ == "__main__":
    main()
