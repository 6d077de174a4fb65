"""Trained tokens per second against TRL's GRPOTrainer, and against ourselves without environment latency.

    python benchmarks/vs_trl.py --json

Needs the extra `bench`. Each side lives in a process of its own and they take turns, so that both see the same machine;
a ratio is taken within a round and the median over rounds is reported. What is compared, and how fairly, is told in
docs/benchmarks.md.
"""

import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parent))

import msgspec

from common.environment import DEFAULT_WAITS, KEPT_HEAP, environment
from common.report import RESULTS, finish, machine, parser, say, shown, spread, table
from trl_support import ours
from trl_support.ours import Setting
from trl_support.task import Timing, Tuning, Workload, write_model

SIGMA = 0.5
"""Shape of the tool's time: one call in twenty takes more than twice the mean."""

MEAN = 0.3

SINGLE = Workload(groups=8, size=8, turns=1, tokens=64)
MULTI = Workload(groups=8, size=8, turns=4, tokens=16, mean=MEAN)
LATENCY = Workload(groups=32, size=8, turns=4, tokens=16)

MULTI_SETTING = Setting(mode="async", staleness=1)
BATCH = 64
LATENCY_STALENESS = 2
PARTS = ("single_turn", "multi_turn", "latency")
RATIOS = (1, 3)
"""Environment time over compute time, per turn."""


@dataclass(frozen=True)
class Plan:
    """Rounds, and steps of a run: warm-up and measured ones. Stock TRL, whose step takes a minute, warms up for one.
    A quick plan is `scale` times smaller where the tool sleeps and, not `thorough`, tunes only TRL's threads."""

    rounds: int
    warm: int
    steps: int
    stock_rounds: int
    stock_steps: int
    latency_rounds: int
    scale: int = 1
    thorough: bool = True

    def work(self, work: Workload) -> Workload:
        return work if work.turns == 1 else msgspec.structs.replace(work, groups=work.groups // self.scale)


CHANGES: dict[str, list[dict[str, Any]]] = {
    "stock": [
        {"waits": "short"},
        {"cache": "static"},
        {"micro_batches": 2},
        {"micro_batches": 4},
        {"ahead": 2},
        {"continuous_batching": True},
    ],
    "gathered": [{"waits": "short"}, {"micro_batches": 2}, {"ahead": 2}],
}
"""What TRL is tried with, one after the other, by how its tools are called."""

Part = tuple[dict[str, float], dict[str, list[float]]]
"""What was tried in tuning, and the rates of each side by round."""

FULL = Plan(rounds=5, warm=2, steps=6, stock_rounds=3, stock_steps=1, latency_rounds=5)
QUICK = Plan(rounds=1, warm=1, steps=2, stock_rounds=1, stock_steps=1, latency_rounds=1, scale=8, thorough=False)


def quieten() -> None:
    """What a side prints is not the result."""
    os.dup2(2, 1)


class Side:
    """A process that runs one side's trainings, one at a time, started in the environment with `changes`."""

    def __init__(self, changes: Mapping[str, str | None]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=quieten)
        with environment(changes):
            self._pool.submit(os.getpid).result()

    def run(self, training: Callable[..., Timing], *arguments: Any) -> Timing:
        return self._pool.submit(training, *arguments).result()

    def close(self) -> None:
        self._pool.shutdown()


class Benchmark:
    def __init__(self, plan: Plan, model: Path, *, seed: int, sigma: float) -> None:
        self._plan = plan
        self._sigma = sigma
        self._model = str(model)
        self._seed = seed
        self._ours = Side({})
        self._theirs: dict[str, Side] = {}
        self._records: list[dict[str, Any]] = []

    def close(self) -> None:
        for side in (self._ours, *self._theirs.values()):
            side.close()

    def taken(self) -> list[dict[str, Any]]:
        """The records since this was last asked for."""
        records, self._records = self._records, []
        return records

    def _tuned(self, work: Workload, tools: Literal["stock", "gathered"], tried: dict[str, float]) -> Tuning:
        """TRL as it is fastest here: threads, then what `CHANGES` has, each kept if it helps."""
        cores = len(os.sched_getaffinity(0))
        start = Tuning(tools=tools)
        best = self._best(work, [msgspec.structs.replace(start, threads=n) for n in sorted({1, cores})], tried)
        for change in CHANGES[tools] if self._plan.thorough else ():
            best = self._best(work, [best, msgspec.structs.replace(best, **change)], tried)
        return best

    def _best(self, work: Workload, candidates: list[Tuning], tried: dict[str, float]) -> Tuning:
        rates = []
        for tuning in candidates:
            name = f"trl, {described(tuning)}"
            if name not in tried:
                tried[name] = self._trl("tuning", self._round(work, 0), tuning)
                say(f"tuning: {name}: {tried[name]:,.0f}")
            rates.append(tried[name])
        return candidates[rates.index(max(rates))]

    def single_turn(self) -> Part:
        tried: dict[str, float] = {}
        tuning = self._tuned(SINGLE, "stock", tried)
        modes = {
            setting: self._springtide("tuning", self._round(SINGLE, 0), setting)
            for setting in (Setting(mode="sync"), Setting(mode="async", staleness=1))
        }
        ours_best = max(modes, key=lambda setting: modes[setting])
        tried |= {f"springtide, {setting.mode}": rate for setting, rate in modes.items()}
        rates: dict[str, list[float]] = {"springtide": [], "trl": []}
        for number in range(self._plan.rounds):
            work = self._round(SINGLE, number)
            sides = {
                "springtide": partial(self._springtide, "single", work, ours_best),
                "trl": partial(self._trl, "single", work, tuning),
            }
            take_turns(sides, number, rates)
            say(f"single turn, round {number + 1}: " + ", ".join(f"{k} {v[-1]:,.0f}" for k, v in rates.items()))
        return tried, rates

    def multi_turn(self) -> Part:
        tried: dict[str, float] = {}
        tuning = self._tuned(MULTI, "gathered", tried)
        rates: dict[str, list[float]] = {"springtide": [], "gathered": [], "stock": []}
        for number in range(self._plan.rounds):
            work = self._round(MULTI, number)
            sides = {
                "springtide": partial(self._springtide, "multi", work, MULTI_SETTING),
                "gathered": partial(self._trl, "multi", work, tuning),
            }
            take_turns(sides, number, rates)
            if number < self._plan.stock_rounds:
                stock = msgspec.structs.replace(tuning, tools="stock", ahead=1)
                rates["stock"].append(self._trl("multi", work, stock, warm=1, steps=self._plan.stock_steps))
            say(f"with a tool, round {number + 1}: " + ", ".join(f"{k} {v[-1]:,.0f}" for k, v in rates.items()))
        return tried, rates

    def latency(self) -> Part:
        """Goodput at zero latency, then with latency; the same number of episodes in flight in all of them."""
        rates: dict[str, list[float]] = {"0": [], **{str(ratio): [] for ratio in RATIOS}}
        for number in range(self._plan.latency_rounds):
            work = self._round(LATENCY, number)
            timing = self._measure("latency", work, latency_setting(work))
            rates["0"].append(self._rate(timing))
            turns = self._plan.steps * work.episodes * work.turns
            # Little's law with the engine's batch in flight: seconds of a turn when there is nothing to wait for.
            turn = batch(work) * timing.seconds(after=self._plan.warm, upto=self._plan.warm + self._plan.steps) / turns
            for ratio in RATIOS:
                late = msgspec.structs.replace(work, mean=ratio * turn)
                rates[str(ratio)].append(self._rate(self._measure("latency", late, latency_setting(work))))
            say(
                f"latency, round {number + 1} (a turn takes {turn:.2f} s): "
                + ", ".join(f"{k}:1 {v[-1]:,.0f}" for k, v in rates.items())
            )
        return {}, rates

    def _round(self, work: Workload, number: int) -> Workload:
        return msgspec.structs.replace(self._plan.work(work), seed=self._seed + number, sigma=self._sigma)

    def _springtide(self, part: str, work: Workload, setting: Setting) -> float:
        return self._rate(self._measure(part, work, setting))

    def _measure(self, part: str, work: Workload, setting: Setting) -> Timing:
        timing = self._ours.run(ours.run, work, setting, self._model, self._plan.warm + self._plan.steps)
        self._keep(part, "springtide", work, setting, timing)
        return timing

    def _trl(self, part: str, work: Workload, tuning: Tuning, *, warm: int = 0, steps: int = 0) -> float:
        from trl_support import theirs

        warm, steps = warm or self._plan.warm, steps or self._plan.steps
        timing = self._their_side(tuning.waits).run(theirs.run, work, tuning, self._model, warm + steps)
        self._keep(part, f"trl, {tuning.tools}", work, tuning, timing)
        return timing.rate(after=warm, upto=warm + steps)

    def _their_side(self, waits: Literal["default", "short"]) -> Side:
        if waits not in self._theirs:
            self._theirs[waits] = Side(KEPT_HEAP | DEFAULT_WAITS if waits == "default" else KEPT_HEAP)
        return self._theirs[waits]

    def _rate(self, timing: Timing) -> float:
        return timing.rate(after=self._plan.warm, upto=self._plan.warm + self._plan.steps)

    def _keep(self, part: str, side: str, work: Workload, how: msgspec.Struct, timing: Timing) -> None:
        parts = {"work": work, "how": how, "timing": timing}
        self._records.append({"part": part, "side": side, "load": os.getloadavg(), **msgspec.to_builtins(parts)})


def take_turns(sides: dict[str, Callable[[], float]], number: int, rates: dict[str, list[float]]) -> None:
    """One round; every other round the other side goes first."""
    for name in list(sides)[:: 1 if number % 2 == 0 else -1]:
        rates[name].append(sides[name]())


def described(tuning: Tuning) -> str:
    """For the table of what was tried."""
    generation = "continuous batching" if tuning.continuous_batching else f"{tuning.cache or 'dynamic'} cache"
    threads = f"{tuning.threads} threads, {tuning.waits} waits"
    return f"{threads}, {generation}, {tuning.ahead} ahead, {tuning.micro_batches} micro-batches"


def batch(work: Workload) -> int:
    """Sequences that the engine decodes together in the latency part: half a train step."""
    return min(BATCH, work.episodes // 2)


def latency_setting(work: Workload) -> Setting:
    """N* = b (1 + T_env / T_turn) episodes keep a batch of b full on average; half as many again keep it full when
    more of them than usual are with their tools. Enough for the largest ratio, and the same for all."""
    return Setting(
        mode="async",
        staleness=LATENCY_STALENESS,
        max_batch=batch(work),
        concurrent=batch(work) * (1 + max(RATIOS)) * 3 // 2,
    )


def ratios(upper: list[float], lower: list[float]) -> dict[str, float]:
    """Spread of the ratio within rounds."""
    return spread([a / b for a, b in zip(upper, lower, strict=False)])


def main() -> None:
    made = parser(__doc__)
    made.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        help="measure only these; the others' results stay as they are in the result file",
    )
    made.add_argument("--sigma", type=float, default=SIGMA, help=f"shape of the log-normal tool time (default {SIGMA})")
    options = made.parse_args()
    plan = QUICK if options.quick else FULL
    parts = {} if options.quick else earlier()
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "model"
        parameters = write_model(model)
        benchmark = Benchmark(plan, model, seed=options.seed, sigma=options.sigma)
        try:
            for part in options.parts:
                started = machine("trl", "accelerate", "datasets")
                tuning, rates = getattr(benchmark, part)()
                common = {"machine": started, "seed": options.seed, "sigma": options.sigma, "parameters": parameters}
                parts[part] = {**common, "tuning": tuning, "rates": rates, "records": benchmark.taken()}
        finally:
            benchmark.close()
    found = {name: spread for part in PARTS if part in parts for name, spread in compared(part, parts[part]["rates"])}
    rows = [
        (f"{part} {side}", shown(spread(values), 0), "")
        for part in PARTS
        if part in parts
        for side, values in parts[part]["rates"].items()
    ]
    rows += [(name, "", shown(value)) for name, value in found.items()]
    print(table(("median (lowest to highest)", "trained tokens / s", "ratio"), rows))
    finish(
        "vs_trl",
        figures={name: value["median"] for name, value in found.items()},
        record={"spread": found, "parts": parts},
        options=options,
    )


def compared(part: str, rates: dict[str, list[float]]) -> Iterator[tuple[str, dict[str, float]]]:
    """The figures of a part, each with its spread over rounds."""
    if part == "single_turn":
        yield "single_turn_ratio", ratios(rates["springtide"], rates["trl"])
    elif part == "multi_turn":
        yield "multi_turn_ratio", ratios(rates["springtide"], rates["gathered"])
        yield "multi_turn_ratio_stock", ratios(rates["springtide"], rates["stock"])
    else:
        for ratio in RATIOS:
            yield f"latency_efficiency_{ratio}", ratios(rates[str(ratio)], rates["0"])


def earlier() -> dict[str, Any]:
    """The parts in the result file."""
    path = RESULTS / "vs_trl.json"
    return dict(json.loads(path.read_text())["parts"]) if path.exists() else {}


if __name__ == "__main__":
    main()
