"""The simulator against the real stack: costs are measured and fitted to a run of one workload, runs of others are
predicted, then played with a real engine, a real trainer and environments that sleep.

Predictions are made before anything that is predicted is played. Workloads are presets with shorter prompts, replies
and outputs, so that a turn takes a tenth of a second on one core and not a second.
"""

import statistics
from typing import Any, NamedTuple

from common.report import say, spread
from springtide.launch.measurement import fitted, measured
from springtide.launch.scripted import Machine, play
from springtide.policy.config import TinyModelConfig
from springtide.simulation.cluster import Cluster
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.simulate import simulate
from springtide.simulation.strategy import Strategy
from springtide.simulation.workload import Workload, preset

MODEL = TinyModelConfig(layers=4, hidden=128, heads=4, kv_heads=4, intermediate=384, max_context=2048)
MACHINE = Machine(model=MODEL)
QUICK = Machine(model=TinyModelConfig(layers=1, hidden=64, heads=2, kv_heads=2, intermediate=192, max_context=2048))

STEPS = 3
REPETITIONS = 3
FITTED = "search"
"""The workload that costs are fitted to; none that is predicted."""
FITTING_SEED = 1000
FITTING_STEPS = 4

SHORTER: dict[str, dict[str, Any]] = {
    "search": {
        "system": 60,
        "task": {"type": "uniform", "start": 15, "stop": 90},
        "append": {"type": "uniform", "start": 25, "stop": 100},
        "output": {"type": "log_normal", "median": 30, "shape": 0.9, "low": 1},
        "latency": {"type": "log_normal", "median": 0.12, "shape": 1.0, "high": 6},
    },
    "shop": {
        "system": 60,
        "task": {"type": "uniform", "start": 15, "stop": 90},
        "append": {"type": "uniform", "start": 40, "stop": 100},
        "output": {"type": "log_normal", "median": 32, "shape": 0.6, "low": 1},
    },
    "house": {
        "system": 60,
        "task": {"type": "uniform", "start": 15, "stop": 90},
        "append": {"type": "uniform", "start": 15, "stop": 40},
        "output": {"type": "log_normal", "median": 35, "shape": 0.6, "low": 1},
        "reset": {"type": "uniform", "start": 0.1, "stop": 0.3},
    },
    "tau": {
        "system": 100,
        "task": {"type": "uniform", "start": 15, "stop": 90},
        "append": {"type": "uniform", "start": 12, "stop": 50},
        "output": {"type": "log_normal", "median": 30, "shape": 0.7, "low": 1},
        "latency": {"type": "log_normal", "median": 0.5, "shape": 0.5, "high": 30},
        "reset": {"type": "constant", "value": 0.1},
    },
}
"""What differs from the preset of that name."""

COMMON: dict[str, Any] = {
    "context": 2048,
    "group_size": 4,
    "groups_per_step": 4,
    "failure_seconds": {"type": "constant", "value": 2.0},
}


class Case(NamedTuple):
    """A run that is predicted and played."""

    workload: str
    strategy: Strategy
    seed: int


CASES = (
    Case("shop", Strategy(rollout_ranks=1, concurrency_per_rank=32, kv="keep", decode_steps=8), 1),
    Case("house", Strategy(rollout_ranks=1, concurrency_per_rank=16, kv="recompute", decode_steps=8), 2),
    Case("tau", Strategy(rollout_ranks=1, concurrency_per_rank=32, kv="keep", staleness=0, decode_steps=8), 3),
)

MERGED = {
    "engine": {"generate": ("generate", "prefill", "decode", "recompute", "reload")},
    "trainer": {"train": ("train", "actor", "reference", "swap", "optimizer")},
}
"""Bins of the ledger by what the wall's clock calls them: it does not see what a visit or a step was made of."""


def workload(name: str) -> Workload:
    return Workload.model_validate({**preset(name).model_dump(), **COMMON, **SHORTER[name], "name": f"{name}, shorter"})


def compare(*, quick: bool, seed: int) -> tuple[dict[str, float], dict[str, Any], list[tuple[str, str]]]:
    """Figures, the record and rows of the table."""
    cases = [case._replace(seed=case.seed + 10 * seed) for case in (CASES[:1] if quick else CASES)]
    machine, steps, repetitions = (QUICK, 1, 1) if quick else (MACHINE, STEPS, REPETITIONS)
    known = workload(FITTED)
    alone = measured(machine, known, seed=FITTING_SEED)
    here = fitted(machine, known, alone, seed=FITTING_SEED, steps=1 if quick else FITTING_STEPS)
    predicted = [_simulate(case, here, steps) for case in cases]
    unfitted = [_simulate(case, alone, steps) for case in cases]
    played: list[list[Outcomes]] = [[] for _ in cases]
    for repetition in range(repetitions):
        for index, case in enumerate(cases):
            run = play(
                workload(case.workload),
                here,
                case.strategy,
                machine,
                seed=case.seed,
                steps=steps,
            )
            played[index].append(run)
            told = f"{predicted[index].step_ends[-1]:.1f} s predicted, {run.step_ends[-1]:.1f} s played"
            say(f"{case.workload}, seed {case.seed}, repetition {repetition + 1}: {told}")
    records = [record(*each) for each in zip(cases, predicted, unfitted, played, strict=True)]
    figures = {
        "real_error": max(abs(each["error"]) for each in records),
        "real_goodput_error": max(abs(each["goodput_error"]) for each in records),
    }
    rows = [(f"makespan, {each['workload']}, real: simulated less real", f"{each['error']:+.2%}") for each in records]
    rows += [
        ("  largest difference, of makespan and of goodput", " ".join(f"{v:.2%}" for v in figures.values())),
        ("  of makespan, with costs as measured", f"{max(abs(each['unfitted_error']) for each in records):.2%}"),
    ]
    return figures, {"cases": records, "measured": alone.model_dump(), "fitted": here.model_dump()}, rows


def record(case: Case, predicted: Outcomes, unfitted: Outcomes, played: list[Outcomes]) -> dict[str, Any]:
    """Errors are relative to the median of what was played. `unfitted`: predicted from costs as they were measured."""
    makespans = spread([run.step_ends[-1] for run in played])
    goodputs = spread([run.goodput for run in played])
    return {
        "workload": case.workload,
        "strategy": case.strategy.model_dump(),
        "seed": case.seed,
        "simulated": predicted.step_ends[-1],
        "makespan": makespans,
        "error": predicted.step_ends[-1] / makespans["median"] - 1,
        "unfitted_error": unfitted.step_ends[-1] / makespans["median"] - 1,
        "simulated_goodput": predicted.goodput,
        "goodput": goodputs,
        "goodput_error": predicted.goodput / goodputs["median"] - 1,
        "ledger": terms(predicted, played),
    }


def terms(predicted: Outcomes, played: list[Outcomes]) -> dict[str, dict[str, dict[str, float]]]:
    """Seconds of each term by lane, simulated and (median) real."""
    simulated, real = merged(predicted), [merged(run) for run in played]
    names = {lane: dict.fromkeys(name for run in (simulated, *real) for name in run[lane]) for lane in MERGED}
    return {
        lane: {
            name: {
                "simulated": simulated[lane].get(name, 0.0),
                "real": statistics.median(run[lane].get(name, 0.0) for run in real),
            }
            for name in names[lane]
        }
        for lane in MERGED
    }


def merged(run: Outcomes) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for lane, parts in MERGED.items():
        whole = {part: name for name, group in parts.items() for part in group}
        bins = found.setdefault(lane, {})
        for name, seconds in run.ledger[lane].items():
            bins[whole.get(name, name)] = bins.get(whole.get(name, name), 0.0) + seconds
    return found


def _simulate(case: Case, cluster: Cluster, steps: int) -> Outcomes:
    return simulate(workload(case.workload), cluster, case.strategy, seed=case.seed, steps=steps)
