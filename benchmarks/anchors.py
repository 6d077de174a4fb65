"""Published measurements of other systems against our simulator (L2).

    python benchmarks/anchors.py --json

Each file in `anchors/` is one published setting, written down before it was first run: workload, hardware, costs,
strategies, the published numbers, and the one constant that is fitted, on one number and on a seed of its own. All
other numbers are predictions. What was changed afterwards stands in a file's list of corrections. Needs no torch.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from anchor_support.anchor import changed, files
from anchor_support.measure import BAR, Measurement
from common.report import RESULTS, finish, machine, parser, say, table

PROCESSES = 2
SEEDS = (0, 1, 2)
QUICK = ("roll-flash", "rollart")
HEADER = ("anchor", "number", "published", "simulated (extremes)", "ratio", f"within {BAR:.0%}")


def measured(job: tuple[str, dict[str, Any]], *, seeds: tuple[int, ...]) -> tuple[str, dict[str, Any]]:
    name, text = job
    return name, Measurement(name, text, seeds=seeds).numbers()


def measure(seeds: tuple[int, ...], texts: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Of `texts` and, unchanged, what is `known` of the others. Anchors that carry another's constant come when it is
    known.
    """
    found = dict(known)
    with ProcessPoolExecutor(PROCESSES) as pool:
        task = partial(measured, seeds=seeds)
        for carries in (False, True):
            jobs = [(name, carried(text, found)) for name, text in texts.items() if ("carry" in text) == carries]
            for done in as_completed([pool.submit(task, job) for job in jobs]):
                name, found[name] = done.result()
                say(table(HEADER, rows({name: found[name]})))
    return {name: found[name] for name in files() if name in found}


def carried(text: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """With the constant that another anchor has fitted."""
    if "carry" not in text:
        return text
    (value,) = found[text["carry"]["from"]]["fitted"].values()
    return changed(text, text["carry"]["path"], value)


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
    made = parser(__doc__)
    made.add_argument("--anchor", action="append", choices=list(files()), help="only this one; others stay as they are")
    options = made.parse_args()
    record: dict[str, Any] = {"label": "L2", "machine": machine(), "bar": BAR}
    seeds = tuple(options.seed + seed for seed in (SEEDS[:1] if options.quick else SEEDS))
    names = options.anchor or (QUICK if options.quick else list(files()))
    texts = {name: short(text) if options.quick else text for name, text in files().items() if name in names}
    record["seeds"] = seeds
    record["anchors"] = measure(seeds, texts, before() if options.anchor else {})
    print(table(HEADER, rows(record["anchors"])))
    finish("anchors", figures={"anchors": figures(record["anchors"])}, record=record, options=options)


def short(text: dict[str, Any]) -> dict[str, Any]:
    """With one measured step per run."""
    return {**text, "runs": {name: {**run, "steps": 1} for name, run in text["runs"].items()}}


def before() -> dict[str, Any]:
    path = RESULTS / "anchors.json"
    found: dict[str, Any] = json.loads(path.read_text())["anchors"] if path.exists() else {}
    return found


def figures(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for anchor in found.values() for row in anchor["numbers"]]


if __name__ == "__main__":
    main()
