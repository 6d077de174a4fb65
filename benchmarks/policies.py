"""The three policies against tuned baselines, on modelled clusters in virtual time (L2).

    python benchmarks/policies.py --json
    python benchmarks/policies.py --parts retention,map --picture map.png

What is run was written down in policies.toml before the policies were; what is different is said in the result file.
Ours is not tuned: it starts with half of the ranks in rollout and finds the rest by itself. Each part's record replaces
the one that the result file has of it, so that an hour's run can be done in pieces. Needs no torch.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

import pipelining
from common.report import RESULTS, finish, machine, parser, say, table
from policies_support import ablations, bounds, elasticity, presets, retention, tail, worth
from policies_support.bench import Bench
from policies_support.plan import DEVIATIONS, PLAN, RUN

Keep = Callable[[Any], None]
"""Writes down what is there of a part."""


class Setting(NamedTuple):
    """`first` is added to the plan's seeds."""

    pool: Executor
    quick: bool
    first: int
    keep: Keep

    def seeds(self, most: int | None = None) -> list[int]:
        return [self.first + seed for seed in RUN["seeds"][: 1 if self.quick else most]]

    def bench(self, steps: int, warm: int, most: int | None = None) -> Bench:
        if self.quick:
            return Bench(self.pool.map, seeds=self.seeds(1), steps=2, warm=1, tuning=(2, 1))
        return Bench(self.pool.map, seeds=self.seeds(most), steps=steps, warm=warm)

    @property
    def entries(self) -> list[dict[str, str]]:
        return [entry for entry in PLAN["preset"] if not self.quick or entry["workload"] == "shop"]


def run_presets(setting: Setting) -> dict[str, Any]:
    bench = setting.bench(RUN["steps"], RUN["warm_steps"])
    groups = QUICK_GROUPS if setting.quick else None
    found: dict[str, Any] = {}
    for entry in setting.entries:
        found[entry["workload"]] = presets.compare(bench, entry, groups=groups, splits=not setting.quick)
        setting.keep(found)
    print(table(presets.HEADER, list(presets.rows(found))))
    return found


def run_bounds(setting: Setting) -> dict[str, Any]:
    entries = setting.entries
    found = dict(zip([entry["workload"] for entry in entries], setting.pool.map(bounds.bounds, entries), strict=True))
    print(table(bounds.HEADER, list(bounds.rows(found))))
    return found


def run_shock(setting: Setting) -> dict[str, Any]:
    bench = Bench(setting.pool.map, seeds=setting.seeds(3), steps=elasticity.STEPS, warm=RUN["warm_steps"])
    groups = QUICK_GROUPS if setting.quick else None
    found: dict[str, Any] = {}
    for name, change in elasticity.changes().items():
        found[name] = elasticity.shock(bench, PLAN["preset"][-1], change, groups=groups)
        setting.keep(found)
    print(table(elasticity.HEADER, list(elasticity.rows(found))))
    return found


def run_ablations(setting: Setting) -> dict[str, Any]:
    bench = setting.bench(3, 1, 3)
    return {entry["workload"]: ablations.ablation(bench, entry) for entry in setting.entries}


def run_priorities(setting: Setting) -> dict[str, Any]:
    """In async, and for two presets in sync."""
    bench = setting.bench(RUN["steps"], RUN["warm_steps"], 2)
    groups = QUICK_GROUPS if setting.quick else None
    found: dict[str, Any] = {}
    for entry in setting.entries:
        modes = ("async", "sync") if entry["workload"] in BARRIERS else ("async",)
        found[entry["workload"]] = {mode: ablations.priorities(bench, entry, mode, groups) for mode in modes}
        setting.keep(found)
    print(table(ablations.HEADER, list(ablations.rows(found))))
    return found


def run_tail(setting: Setting) -> dict[str, Any]:
    groups = QUICK_GROUPS if setting.quick else None
    found: dict[str, Any] = {}
    for entry in setting.entries:
        if setting.quick or entry["workload"] in tail.WORKLOADS:
            found[entry["workload"]] = tail.tail(setting.pool.map, entry, setting.seeds(2), groups)
            setting.keep(found)
    print(table(tail.HEADER, list(tail.rows(found))))
    return found


def run_retention(setting: Setting) -> list[dict[str, Any]]:
    """With host memory, and where it is `tau` also without."""
    times = (retention.TIMES,) if setting.quick else PLAN["retention"]["oversubscription"]
    cases = [(workload, True) for workload in retention.WORKLOADS] + [("tau", False)]
    found: list[dict[str, Any]] = []
    for workload, host in cases[-1:] if setting.quick else cases:
        entry = next(entry for entry in PLAN["preset"] if entry["workload"] == workload)
        found += retention.compare(setting.bench(4, 2), entry, times, host=host)
        setting.keep(found)
    print(table(retention.HEADER, list(retention.rows(found))))
    return found


def run_map(setting: Setting) -> list[dict[str, Any]]:
    points = worth.points()[:1] if setting.quick else worth.points()
    found: list[dict[str, Any]] = []
    for point in setting.pool.map(partial(worth.worth, seeds=setting.seeds()), points):
        found.append(point)
        setting.keep(found)
    print(table(worth.HEADER, list(worth.rows(found))))
    return found


def run_pipelining(setting: Setting) -> dict[str, Any]:
    results = pipelining.measure(setting.pool, seed=setting.first, steps=5 if setting.quick else 40)
    return pipelining.figures(results)


PARTS: dict[str, Callable[[Setting], Any]] = {
    "bounds": run_bounds,
    "presets": run_presets,
    "shock": run_shock,
    "ablations": run_ablations,
    "priorities": run_priorities,
    "tail": run_tail,
    "retention": run_retention,
    "map": run_map,
    "pipelining": run_pipelining,
}
QUICK = ("presets", "pipelining")
BARRIERS = ("swe", "tau")
"""Presets whose priorities are also compared in sync."""
QUICK_GROUPS = 8
"""Per step."""


class Record:
    """What the result file has, part by part."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        path = RESULTS / ("policies.quick.json" if options.quick else "policies.json")
        before = json.loads(path.read_text()) if path.exists() and not options.quick else {}
        self.parts: dict[str, Any] = before.get("parts", {})

    def keep(self, name: str, about: dict[str, Any], found: Any, *, show: bool = False) -> None:
        """`show` the figures on the last line, if they are asked for."""
        if name:
            self.parts[name] = {**about, "found": found}
        options = argparse.Namespace(**{**vars(self._options), "json": show and self._options.json})
        record = {"label": "L2", "deviations": DEVIATIONS, "parts": self.parts}
        finish("policies", figures=figures(self.parts), record=record, options=options)


def figures(parts: dict[str, Any]) -> dict[str, Any]:
    """Of the parts that there are."""
    found = {name: part["found"] for name, part in parts.items()}
    made: dict[str, Any] = {}
    if "presets" in found:
        kept = ("bound_fraction", *presets.GROUPS, "binds")
        made["presets"] = {name: {key: one[key] for key in kept} for name, one in found["presets"].items()}
        made["hit_rate"] = min(one["hit_rate"] for one in found["presets"].values())
    if "presets" in found and "bounds" in found:
        fractions = bounds.in_order_fractions(found["bounds"], found["presets"])
        made |= {"in_order_fraction": fractions, "most": bounds.most(fractions, found["presets"])}
    if "retention" in found:
        hits = retention.hit_rate(found["retention"])
        made |= {} if hits is None else {"hit_rate": hits}
    if "shock" in found:
        kept = ("waiting_reduction", "settle_steps")
        made |= {name: found["shock"]["latency"][name] for name in kept}
        made["longer_outputs"] = {name: found["shock"]["output"][name] for name in kept if "output" in found["shock"]}
    return made | {name: found["pipelining"][name] for name in ("oracle_regret",) if "pipelining" in found}


def chosen(text: str | None, *, quick: bool) -> Sequence[str]:
    names = [name for name in (text or "").split(",") if name]
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise SystemExit(f"There is no part '{unknown[0]}'; there are: {', '.join(PARTS)}.")
    return names if text is not None else QUICK if quick else tuple(PARTS)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--parts", help=f"which of {','.join(PARTS)}; default: all ({','.join(QUICK)} if quick)")
    made.add_argument("--workers", type=int, help="processes; default: one per core")
    made.add_argument("--picture", type=Path, help="draw the map of the result file")
    options = made.parse_args()
    names = chosen(options.parts, quick=options.quick)
    record = Record(options)
    started = machine()
    with ProcessPoolExecutor(options.workers or started["cores"]) as pool:
        for name in names:
            begun = time.monotonic()
            about = {"machine": machine(), "seed": options.seed}
            setting = Setting(pool, options.quick, options.seed, partial(record.keep, name, about))
            found = PARTS[name](setting)
            record.keep(name, about | {"wall_seconds": round(time.monotonic() - begun)}, found)
            say(f"{name}: {time.monotonic() - begun:.0f} s")
    if options.picture is not None:
        if "map" not in record.parts:
            raise SystemExit("The result file has no map; run it with --parts map.")
        worth.draw(record.parts["map"]["found"], options.picture)
    record.keep("", {}, None, show=True)


if __name__ == "__main__":
    main()
