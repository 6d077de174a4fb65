"""Goodput of our scheduling policies on the embedded engine, against LRU with the same host tier and without one, and
learning over KV that is kept or refreshed (L0).

    python benchmarks/retention_real.py --json

A run is `springtide train` in async: controller, journal, embedded engine (one thread) and trainer (one thread). Its
episodes are replayed from scripts of sessions in a shell; the environment's time is slept. The engine's KV capacity is
half of what as many episodes need as keep its batch full. LRU is tuned: from as many episodes in flight as fit, up or
down a sweep as far as it gets better, and one further. Ours is not tuned. Arms take turns, a ratio is taken within a
round, and each run's first steps are not measured.

Parts can be measured alone (`--parts`); the others' results stay as they are in the result file. What is measured is
kept round by round.
"""

import json
import multiprocessing
import os
import sys
import tomllib
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import msgspec

from common.report import RESULTS, finish, machine, parser, say, shown, spread, table
from retention_support.side import Arm, Size, Timing, run
from springtide.simulation.distribution import mean
from springtide.simulation.script import Scripts
from springtide.simulation.workload import Workload

NAME = "retention_real"
WORKLOAD = Path(__file__).resolve().parent / "retention_support" / "shell.toml"

SAMPLED_TASKS = 100
LATENCY = 0.4
"""Mean seconds of the environment per turn; `demand` in the result has the time of a turn in a full batch beside it."""

HOST = 12_288
SIZE = Size(capacity=12_288, max_batch=8, staleness=2, warm=2, steps=3)
TUNING_SIZE = msgspec.structs.replace(SIZE, warm=1, steps=2)
"""As many episodes as keep a batch of 8 full need about twice `capacity`: see `demand` in the result. Staleness 2 keeps
the engine from waiting for the trainer, in all arms."""

SWEEP = (4, 8, 12, 16, 24, 32, 64)
START = 12
"""About as many episodes as `capacity` holds when they are halfway through."""

OURS = Arm(retention="break-even", admission="law", kv="keep", host=HOST)
BASELINES = {"lru": Arm(kv="keep"), "lru, tier": Arm(kv="keep", host=HOST)}
"""Each tuned over `SWEEP`. KV is kept over updates, as ours is: they differ from ours in nothing but which sessions are
in flight and whose KV stays."""

RULES = {
    "cap-0.3": Arm(retention="cap-0.3", kv="keep", host=HOST),
    "ttl-0.5": Arm(retention="ttl-0.5", kv="keep", host=HOST),
    "min-waste": Arm(retention="min-waste", kv="keep", host=HOST),
    "lru-ordered": Arm(retention="lru-ordered", kv="keep", host=HOST),
    "break-even": Arm(retention="break-even", kv="keep", host=HOST),
}
"""With as many episodes in flight as were best for LRU with the host tier."""

FIGURES = {"vs_lru_tier": "lru, tier", "vs_lru": "lru"}
QUICK_SIZE = msgspec.structs.replace(SIZE, warm=1, steps=1)
QUICK_ARMS = {"ours": OURS, **BASELINES}
"""Nothing is tuned: whether it runs is all that this says."""


def workload(quick: bool) -> Workload:
    work = Workload.model_validate(tomllib.loads(WORKLOAD.read_text()))
    work = work.model_copy(update={"latency_factor": LATENCY / mean(work.latency)})
    return work.model_copy(update={"groups_per_step": 1, "group_size": 2}) if quick else work


class Bench:
    """Runs arms in a process of their own, one at a time, and keeps what each came to."""

    def __init__(self, work: Workload) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=spawn)
        self._work = work
        self.records: list[dict[str, Any]] = []

    def close(self) -> None:
        self._pool.shutdown()

    def rate(self, name: str, arm: Arm, size: Size, seed: int) -> float:
        timing: Timing = self._pool.submit(run, arm, size, self._work, seed).result()
        built = msgspec.to_builtins({"how": arm, "timing": timing})
        self.records.append({"arm": name, "seed": seed, "load": os.getloadavg(), **built})
        say(f"{name}, {arm.concurrent} in flight, seed {seed}: {timing.rate:,.0f} tokens/s")
        return timing.rate

    def tuned(self, name: str, arm: Arm, size: Size, seed: int) -> tuple[Arm, dict[str, float]]:
        """The best number of episodes in flight, both of whose neighbours in the sweep are worse."""

        def rate(concurrent: int) -> float:
            return self.rate(name, msgspec.structs.replace(arm, concurrent=concurrent), size, seed)

        best, tried = climbed(SWEEP, START, rate)
        return msgspec.structs.replace(arm, concurrent=best), {str(number): tried[number] for number in sorted(tried)}


def climbed(sweep: Sequence[int], start: int, rate: Callable[[int], float]) -> tuple[int, dict[int, float]]:
    """From `start` to where in `sweep` `rate` is best, a neighbour at a time; and what was tried."""
    tried: dict[int, float] = {}
    at = sweep.index(start)
    while True:
        near = sweep[max(0, at - 1) : at + 2]
        tried |= {number: rate(number) for number in near if number not in tried}
        best = max(near, key=lambda number: tried[number])
        if best == sweep[at]:
            return best, tried
        at = sweep.index(best)


def tuned_arms(bench: Bench, seed: int) -> tuple[dict[str, Arm], dict[str, dict[str, float]]]:
    """Ours and the baselines, and what was tried for these."""
    arms, tuning = {"ours": OURS}, {}
    for name, arm in BASELINES.items():
        arms[name], tuning[name] = bench.tuned(name, arm, TUNING_SIZE, seed)
    return arms, tuning


def demand(work: Workload, records: list[dict[str, Any]], seed: int) -> dict[str, float]:
    """By Little's law, the episodes that keep a batch full, and the tokens of their contexts.

    A turn takes the batch as long as the engine of our runs generated for each of its tokens.
    """
    scripts = Scripts(work, seed)
    turns = [
        turn
        for task in range(SAMPLED_TASKS)
        for slot in range(work.group_size)
        for turn in scripts.script(task=task, slot=slot).turns
    ]
    context = sum(turn.context + turn.output for turn in turns) / len(turns)
    output = sum(turn.output for turn in turns) / len(turns)
    environment = sum(turn.latency for turn in turns) / len(turns)
    ours = [record["timing"]["notes"] for record in records if record["arm"] == "ours"]
    generated, sampled = (sum(notes[name] for notes in ours) for name in ("ledger/engine/generate", "engine/decoded"))
    seconds = SIZE.max_batch * output * generated / sampled
    episodes = SIZE.max_batch * (1 + environment / seconds)
    return {
        "turn_seconds": seconds,
        "environment_seconds": environment,
        "context": context,
        "episodes": episodes,
        "tokens": episodes * context,
    }


Keep = Callable[[dict[str, Any]], None]
"""Puts what has been measured of a part into the result file."""


def goodput(options: Any, keep: Keep) -> None:
    """Tuning on a seed that is not measured, then rounds."""

    def arms(bench: Bench) -> tuple[dict[str, Arm], dict[str, Any]]:
        if options.quick:
            return QUICK_ARMS, {}
        made, tuning = tuned_arms(bench, options.seed + options.rounds)
        return made, {"tuning": tuning}

    compared(options, keep, arms)


def rules(options: Any, keep: Keep) -> None:
    """Published rules of retention, ours with a number of episodes that is given, and ours as it is."""
    found = earlier().get("goodput")
    if found is None:
        raise SystemExit(
            "The part 'rules' takes the number of episodes in flight from the part 'goodput'; run that first."
        )
    best = found["arms"]["lru, tier"]["concurrent"]
    given = {name: msgspec.structs.replace(arm, concurrent=best) for name, arm in RULES.items()}
    compared(options, keep, lambda _: ({"ours": OURS, **given}, {}))


def compared(options: Any, keep: Keep, arms: Callable[[Bench], tuple[dict[str, Arm], dict[str, Any]]]) -> None:
    """Rounds, in each of which every arm has its turn."""
    started = machine()
    size, rounds = (QUICK_SIZE, 1) if options.quick else (SIZE, options.rounds)
    work = workload(options.quick)
    bench = Bench(work)
    try:
        made, beside = arms(bench)
        rates: dict[str, list[float]] = {name: [] for name in made}
        for number in range(rounds):
            for name in list(made)[:: 1 if number % 2 == 0 else -1]:
                rates[name].append(bench.rate(name, made[name], size, options.seed + number))
            ratios = {
                figure: spread([ours / other for ours, other in zip(rates["ours"], rates[arm], strict=True)])
                for figure, arm in FIGURES.items()
                if arm in rates
            }
            keep(
                {
                    "figures": ratios,
                    "machine": started,
                    "workload": work.model_dump(),
                    "size": msgspec.to_builtins(size),
                    "demand": demand(work, bench.records, options.seed),
                    **beside,
                    "arms": {name: msgspec.to_builtins(arm) for name, arm in made.items()},
                    "rates": rates,
                    "records": bench.records,
                }
            )
    finally:
        bench.close()


HEADER = ("arm", "in flight", "trained tokens/s", "generates", "on environment", "on trainer", "trains", "hit rate")


def learning(options: Any, keep: Keep) -> None:
    """Whether agents learn as well over kept or refreshed KV."""
    # Imports torch, which the process that measures goodput has no need of.
    from retention_support.parity import parity, report

    part = parity(options)
    print(report(part))
    keep(part)


PARTS: dict[str, Callable[[Any, Keep], None]] = {"goodput": goodput, "rules": rules, "parity": learning}
"""Each keeps what goes into the result file under its name; of that, `figures` are printed."""
QUICK_PARTS = ("goodput", "parity")


def where_time_went(records: list[dict[str, Any]], name: str) -> list[str]:
    """Of the arm's last run: shares of the time in which the engine generated, waited for environments and waited for
    the trainer, and in which the trainer trained; and the hit rate."""
    timing = [record["timing"] for record in records if record["arm"] == name][-1]
    notes, seconds = timing["notes"], timing["seconds"]
    lanes = (("engine", "generate"), ("engine", "environment"), ("engine", "training"), ("trainer", "train"))
    shares = [notes.get(f"ledger/{lane}/{bin_}", 0.0) / seconds for lane, bin_ in lanes]
    again, reused = notes.get("engine/reprefilled", 0.0), notes.get("engine/reused", 0.0)
    hit = reused / (again + reused) if again + reused else 1.0
    return [*(f"{share:.2f}" for share in shares), f"{hit:.3f}"]


def show(part: dict[str, Any]) -> None:
    rows = []
    for name, rates in part["rates"].items():
        how = part["arms"][name]
        flight = "by the law" if how["admission"] == "law" else str(how["concurrent"])
        rows.append([name, flight, shown(spread(rates), 0), *where_time_went(part["records"], name)])
    print(table(HEADER, rows))
    if part["figures"]:
        found = part["figures"].items()
        print(table(["ours against", "ratio"], [[FIGURES[name], shown(ratio)] for name, ratio in found]))


def earlier() -> dict[str, Any]:
    """The parts in the result file."""
    path = RESULTS / f"{NAME}.json"
    return dict(json.loads(path.read_text())["parts"]) if path.exists() else {}


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument(
        "--parts",
        nargs="+",
        choices=list(PARTS),
        help="measure only these; the others' results stay as they are in the result file",
    )
    options = made.parse_args()
    parts = {} if options.quick else earlier()

    def write(shown: bool) -> None:
        figures = {figure: value for part in parts.values() for figure, value in part["figures"].items()}
        record = Namespace(**{**vars(options), "json": shown and options.json})
        finish(NAME, figures=figures, record={"parts": parts}, options=record)

    def keep(name: str, found: dict[str, Any]) -> None:
        parts[name] = found
        write(shown=False)

    for name in options.parts or (QUICK_PARTS if options.quick else PARTS):
        PARTS[name](options, partial(keep, name))
        if "rates" in parts[name]:
            show(parts[name])
    write(shown=True)


if __name__ == "__main__":
    main()
