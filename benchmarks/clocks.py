"""How far the virtual clock can be trusted, and what a decision costs.

    python benchmarks/clocks.py --json
    python benchmarks/clocks.py --json --parts real

Modelled runs on the virtual clock (L2) beside the same runs with real sleeps (L1) and, with costs that were measured
before, beside the same runs with a real engine, a real trainer and real sleeps (L0); decisions per second of the
scheduler, its cost per event from 8 to 1,024 ranks, and the time of a large run. Only the part `real` needs torch.
"""

import asyncio
import gc
import json
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common.report import RESULTS, finish, machine, parser, say, table
from springtide.scheduling.commands import Command, Prepare, Publish, StartMember, Train
from springtide.scheduling.config import SchedulingConfig
from springtide.scheduling.events import (
    Boundary,
    Event,
    MemberFinished,
    ProcessStarted,
    Published,
    RunStarted,
    StepFinished,
)
from springtide.scheduling.milestones import Milestones
from springtide.scheduling.scheduler import Scheduler
from springtide.simulation.cluster import Cluster, cluster
from springtide.simulation.emulation import EmulatedLoop
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.simulate import Simulation
from springtide.simulation.strategy import Strategy
from springtide.simulation.virtual_loop import run_virtual
from springtide.simulation.workload import Workload, preset

CASES = (
    ("shop", Strategy(rollout_ranks=2, concurrency_per_rank=16)),
    ("shop", Strategy(rollout_ranks=3, concurrency_per_rank=24, kv="keep", evicts="warm")),
    ("house", Strategy(rollout_ranks=2, concurrency_per_rank=32, kv="keep")),
    ("tau", Strategy(rollout_ranks=3, concurrency_per_rank=12, kv="keep", evicts="warm")),
    ("search", Strategy(rollout_ranks=3, concurrency_per_rank=8)),
)
SPEED = 10.0
"""Of the emulated clock. A decode step of 20 ms then takes 2 ms of the wall's time."""

TASKS = 64
"""Episodes per rank in the large run."""

EVENTS = 20_000
SIZES = (8, 64, 512, 1024)
"""Ranks."""


class Part(NamedTuple):
    """What a part of the benchmark found: figures, what else is recorded, rows of the table."""

    figures: dict[str, float]
    record: dict[str, Any]
    rows: list[tuple[str, str]]


def small(name: str) -> Workload:
    return preset(name).model_copy(update={"groups_per_step": 4})


def simulation(name: str, strategy: Strategy, seed: int) -> Simulation:
    ranks = strategy.rollout_ranks + 1
    hardware = cluster("h100-14b").model_copy(update={"ranks": ranks})
    return Simulation(small(name), hardware, strategy, seed=seed, steps=2)


def differences(virtual: Outcomes, emulated: Outcomes) -> tuple[float, float]:
    """Of the makespan, relative; and the largest of a ledger term, in units of what is allowed: the larger of 5 % of
    itself and 1 % of the makespan."""
    makespan = virtual.step_ends[-1]
    worst = 0.0
    for lane, bins in virtual.ledger.items():
        for name in bins.keys() | emulated.ledger[lane].keys():
            one, other = bins.get(name, 0.0), emulated.ledger[lane].get(name, 0.0)
            worst = max(worst, abs(one - other) / max(0.05 * one, 0.01 * makespan))
    return abs(emulated.step_ends[-1] / makespan - 1), worst


def emulate(case: tuple[str, Strategy, int]) -> dict[str, Any]:
    name, strategy, seed = case
    virtual, _ = run_virtual(simulation(name, strategy, seed).main)
    loop = EmulatedLoop(speed=SPEED)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        emulated = runner.run(simulation(name, strategy, seed).main())
        late = loop.late
    makespan, ledger = differences(virtual, emulated)
    say(f"{name}, seed {seed}: {virtual.step_ends[-1]:.0f} s, off by {makespan:.2%}, ledger {ledger:.2f}")
    return {
        "workload": name,
        "strategy": strategy.model_dump(),
        "seed": seed,
        "virtual": virtual.step_ends[-1],
        "emulated": emulated.step_ends[-1],
        "late": late,
        "makespan_error": makespan,
        "ledger_error": ledger,
    }


def emulated(quick: bool, seed: int) -> Part:
    """Two cases at a time: they sleep nearly all of theirs."""
    seeds = range(seed, seed + (1 if quick else 4))
    wanted = [(name, strategy, each) for name, strategy in CASES[: 2 if quick else None] for each in seeds]
    with ProcessPoolExecutor(2) as pool:
        cases = list(pool.map(emulate, wanted))
    figures = {
        "emulated_error": max(case["makespan_error"] for case in cases),
        "emulated_ledger_error": max(case["ledger_error"] for case in cases),
    }
    rows = [
        (
            f"makespan, {len(cases)} cases, emulated against virtual: largest difference",
            f"{figures['emulated_error']:.2%}",
        ),
        ("  median", f"{statistics.median(case['makespan_error'] for case in cases):.2%}"),
        ("ledger terms: largest difference, of what is allowed", f"{figures['emulated_ledger_error']:.2f}"),
    ]
    return Part(figures, {"cases": cases}, rows)


def decide(ranks: int, seed: int) -> float:
    """Seconds per event of a scheduler that keeps 64 episodes on each of `ranks` busy; episodes end in any order."""
    draw = random.Random(seed)
    batch = ranks * TASKS // 8 // 2
    scheduler = Scheduler(
        SchedulingConfig(
            mode="async",
            groups_per_step=batch,
            group_size=8,
            steps=10**6,
            staleness=1,
            max_concurrent=ranks * TASKS,
            group_deadline=1e9,
        ),
        Milestones(last=10**6, checkpoint_every=10**7),
    )
    pending: list[Event] = [RunStarted(Boundary()), ProcessStarted(0)]
    playing: list[StartMember] = []
    spent, events = 0.0, 0
    gc.collect()
    gc.disable()
    try:
        while events < EVENTS:
            event = pending.pop(0) if pending else finished(playing, draw.randrange(len(playing)))
            started = time.perf_counter()
            commands = scheduler.on(event)
            took = time.perf_counter() - started
            if isinstance(event, MemberFinished):
                spent, events = spent + took, events + 1
            react(commands, playing, pending)
    finally:
        gc.enable()
    return spent / events


def finished(playing: list[StartMember], index: int) -> MemberFinished:
    playing[index], playing[-1] = playing[-1], playing[index]
    one = playing.pop()
    return MemberFinished(group=one.group, slot=one.slot, attempt=one.attempt, epoch=0, reward=1.0)


def react(commands: list[Command], playing: list[StartMember], pending: list[Event]) -> None:
    for command in commands:
        match command:
            case StartMember():
                playing.append(command)
            case Train(step=step):
                pending.append(StepFinished(step=step, digest="", trained_tokens=1))
            case Publish(version):
                pending.append(Published(version))
            case Prepare():
                pass


def play_large(ranks: int, steps: int, seed: int) -> float:
    """Seconds of this machine for `steps` steps of `ranks` ranks with 64 episodes on each of those that roll out."""
    rollout = ranks * 5 // 8
    work = preset("tau").model_copy(update={"groups_per_step": rollout * TASKS // 8 // 2})
    hardware: Cluster = cluster("h100-14b").model_copy(update={"ranks": ranks, "environment_slots": ranks * TASKS})
    strategy = Strategy(rollout_ranks=rollout, concurrency_per_rank=TASKS, kv="keep", evicts="warm")
    started = time.perf_counter()
    run_virtual(Simulation(work, hardware, strategy, seed=seed, steps=steps).main)
    return time.perf_counter() - started


def decisions(quick: bool, seed: int) -> Part:
    costs = {ranks: min(decide(ranks, seed) for _ in range(1 if quick else 5)) for ranks in SIZES}
    figures = {
        "decisions_per_s": 1 / max(costs.values()),
        "event_cost_ratio": max(costs.values()) / min(costs.values()),
    }
    rows = [(f"microseconds per event, {ranks} ranks", f"{1e6 * cost:.1f}") for ranks, cost in costs.items()]
    return Part(figures, {"event_seconds": costs}, rows)


def large(quick: bool, seed: int) -> Part:
    ranks, steps = (64, 1) if quick else (1024, 3)
    seconds = play_large(ranks, steps, seed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = [(f"seconds for {ranks} ranks, {TASKS} tasks each, {steps} steps", f"{seconds:.0f}")]
    return Part({"large_seconds": seconds}, {"large": [ranks, steps], "peak_kib": peak}, rows)


def real(quick: bool, seed: int) -> Part:
    from clocks_support.real import compare

    figures, record, rows = compare(quick=quick, seed=seed)
    return Part(figures, record, rows)


PARTS: dict[str, Callable[[bool, int], Part]] = {
    "emulated": emulated,
    "decisions": decisions,
    "large": large,
    "real": real,
}


def main() -> None:
    made = parser(__doc__)
    made.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        help="measure only these; the others' results stay as they are in the result file",
    )
    options = made.parse_args()
    parts = {} if options.quick else earlier()
    rows: list[tuple[str, str]] = []
    for name in options.parts:
        started = machine()
        figures, record, told = PARTS[name](options.quick, options.seed)
        parts[name] = {"machine": started, "seed": options.seed, "figures": figures, **record}
        rows += told
    print(table(("", ""), rows))
    found = {key: value for name in PARTS if name in parts for key, value in parts[name]["figures"].items()}
    finish("clocks", figures=found, record={"label": "L0, L1, L2", "parts": parts}, options=options)


def earlier() -> dict[str, Any]:
    """The parts in the result file."""
    path = RESULTS / "clocks.json"
    return dict(json.loads(path.read_text()).get("parts", {})) if path.exists() else {}


if __name__ == "__main__":
    main()
