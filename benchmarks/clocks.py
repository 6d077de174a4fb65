"""How far the virtual clock can be trusted, and what a decision costs.

    python benchmarks/clocks.py --json

Modelled runs on the virtual clock (L2) beside the same runs with real sleeps (L1); decisions per second of the
scheduler, its cost per event from 8 to 1,024 ranks, and the time of a large run. Needs no torch.
"""

import gc
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common.report import finish, machine, parser, say, table
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
from springtide.simulation.emulation import run_emulated
from springtide.simulation.simulate import Outcomes, Simulation
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


def emulate(seeds: int, first: int) -> Iterator[dict[str, Any]]:
    for name, strategy in CASES:
        for seed in range(first, first + seeds):
            virtual, _ = run_virtual(simulation(name, strategy, seed).main)
            emulated = run_emulated(simulation(name, strategy, seed).main, speed=SPEED)
            makespan, ledger = differences(virtual, emulated)
            say(f"{name}, seed {seed}: {virtual.step_ends[-1]:.0f} s, off by {makespan:.2%}, ledger {ledger:.2f}")
            yield {
                "workload": name,
                "strategy": strategy.model_dump(),
                "seed": seed,
                "virtual": virtual.step_ends[-1],
                "emulated": emulated.step_ends[-1],
                "makespan_error": makespan,
                "ledger_error": ledger,
            }


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


def large(ranks: int, steps: int, seed: int) -> float:
    """Seconds of this machine for `steps` steps of `ranks` ranks with 64 episodes on each of those that roll out."""
    rollout = ranks * 5 // 8
    work = preset("tau").model_copy(update={"groups_per_step": rollout * TASKS // 8 // 2})
    hardware: Cluster = cluster("h100-14b").model_copy(update={"ranks": ranks, "environment_slots": ranks * TASKS})
    strategy = Strategy(rollout_ranks=rollout, concurrency_per_rank=TASKS, kv="keep", evicts="warm")
    started = time.perf_counter()
    run_virtual(Simulation(work, hardware, strategy, seed=seed, steps=steps).main)
    return time.perf_counter() - started


def main() -> None:
    options = parser(__doc__).parse_args()
    started = machine()
    cases = list(emulate(1 if options.quick else 4, options.seed))
    costs = {ranks: min(decide(ranks, options.seed) for _ in range(1 if options.quick else 5)) for ranks in SIZES}
    ranks, steps = (64, 1) if options.quick else (1024, 3)
    seconds = large(ranks, steps, options.seed)
    figures = {
        "emulated_error": max(case["makespan_error"] for case in cases),
        "emulated_ledger_error": max(case["ledger_error"] for case in cases),
        "decisions_per_s": 1 / max(costs.values()),
        "event_cost_ratio": max(costs.values()) / min(costs.values()),
        "large_seconds": seconds,
    }
    median = statistics.median(case["makespan_error"] for case in cases)
    rows = [
        (
            f"makespan, {len(cases)} cases, emulated against virtual: largest difference",
            f"{figures['emulated_error']:.2%}",
        ),
        ("  median", f"{median:.2%}"),
        ("ledger terms: largest difference, of what is allowed", f"{figures['emulated_ledger_error']:.2f}"),
        *((f"microseconds per event, {ranks} ranks", f"{1e6 * cost:.1f}") for ranks, cost in costs.items()),
        (f"seconds for {ranks} ranks, {TASKS} tasks each, {steps} steps", f"{seconds:.0f}"),
    ]
    print(table(("", ""), rows))
    record = {"label": "L1, L2", "machine": started, "cases": cases, "event_seconds": costs, "large": [ranks, steps]}
    finish("clocks", figures=figures, record=record, options=options)


if __name__ == "__main__":
    main()
