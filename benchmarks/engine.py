"""The torch engine against `generate`, transformers' continuous batching and vLLM, on the CPU.

    python benchmarks/engine.py [--quick] [--json] [--vllm-python PATH]

All engines run the same model on the same prompts, interleaved, in this process or, where they have threads of their
own, in a child process (continuous batching; vLLM, in its own environment). One warm-up each, then medians over the
repetitions; continuous batching, an order of magnitude slower, has no warm-up and fewer repetitions. Writes
benchmarks/results/engine.json.
"""

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from common.environment import KEPT_HEAP
from common.report import finish, machine, parser, table
from engine_exactness import exactness
from engine_peers import CLOCKS, Apart, Clock, Generate, Peer, Springtide, Vllm
from engine_workloads import Batch, Conversation, conversation, ragged, uniform

WIDTHS = (2, 4, 8, 16, 32, 64)
"""Sequences at a time that continuous batching is tried with."""


class Series:
    """Interleaved repetitions of one workload."""

    def __init__(self, peers: list[Peer], work: Batch | Conversation, unit: str, tokens: int) -> None:
        self.peers, self.work, self.unit, self.tokens = peers, work, unit, tokens
        self.seconds: dict[str, list[float]] = {peer.name: [] for peer in peers}
        self.hits: dict[str, float | None] = {}

    def run(self, repetitions: int, *, slow: dict[str, int] | None = None) -> "Series":
        """One warm-up, then `repetitions`; peers named in `slow` have no warm-up and so many repetitions."""
        for repetition in range(-1, repetitions):
            for peer in self.peers:
                if slow and peer.name in slow and not 0 <= repetition < slow[peer.name]:
                    continue
                if isinstance(self.work, Batch):
                    seconds = peer.complete(self.work)
                else:
                    seconds, self.hits[peer.name] = peer.converse(self.work)
                if repetition >= 0:
                    self.seconds[peer.name].append(seconds)
        return self

    def rate(self, name: str) -> float:
        return self.tokens / statistics.median(self.seconds[name])

    def ratio(self, name: str) -> float:
        """Ours over theirs: above 1 we are faster."""
        return self.rate("springtide") / self.rate(name)

    def rows(self, title: str) -> list[list[str]]:
        rows = []
        for name, seconds in self.seconds.items():
            hit = self.hits.get(name)
            spread = f"{self.tokens / max(seconds):,.0f} to {self.tokens / min(seconds):,.0f} of {len(seconds)}"
            ratio = "" if name == "springtide" else f"{self.ratio(name):.2f}"
            rows.append([title, name, f"{self.rate(name):,.0f}", spread, ratio, "" if hit is None else f"{hit:.3f}"])
        return rows

    def record(self) -> dict[str, Any]:
        peers = [name for name in self.seconds if name != "springtide"]
        return {
            "unit": self.unit,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "tokens_per_second": {name: self.rate(name) for name in self.seconds},
            "ratio": {name: self.ratio(name) for name in peers},
            "hit_rate": self.hits,
            "notes": {peer.name: peer.notes for peer in self.peers},
        }


def main() -> None:
    arguments = _arguments()
    if any(name not in os.environ for name in KEPT_HEAP):
        # The C library reads them when a process starts, and OpenMP what springtide has set when torch loads it.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | KEPT_HEAP)
    torch.set_num_threads(arguments.threads)
    repetitions = 2 if arguments.quick else 7
    started = machine() | {"cpu": _cpu(), "threads": arguments.threads, "clock": arguments.clock}
    exact = exactness()
    missing: dict[str, str] = {}
    results = _small(arguments, repetitions, missing)
    if not arguments.quick:
        results |= _large(CLOCKS[arguments.clock], arguments.seed)
    _print_table(results, exact, missing)
    record = {
        "machine": started,
        "exactness": exact,
        "workloads": {name: series.record() for name, series in results.items()},
        "not_run": missing,
    }
    finish("engine", figures=_figures(results, exact, missing), record=record, options=arguments)


def _small(arguments: argparse.Namespace, repetitions: int, missing: dict[str, str]) -> dict[str, Series]:
    clock = CLOCKS[arguments.clock]
    makers: list[Callable[[], Peer]] = [
        lambda: Generate("0.85M", clock),
        lambda: Apart("0.85M", arguments.clock, threads=arguments.threads, widths=(16,) if arguments.quick else WIDTHS),
    ]
    if arguments.vllm_python is None:
        missing["vllm"] = "no --vllm-python was given"
    else:
        makers += [_vllm(arguments, eager=False), _vllm(arguments, eager=True)]
    ours: list[Peer] = [Springtide("0.85M", clock), Springtide("0.85M", clock, native=False)]
    peers: list[Peer] = [*ours, *(make() for make in makers)]
    seed = arguments.seed
    batch, uneven = uniform(seed), ragged(seed)
    talk = conversation(seed, turns=4) if arguments.quick else conversation(seed)
    slow = {"transformers_cb": 1 if arguments.quick else 3}
    try:
        return {
            "uniform": Series(peers, batch, "sampled tokens", batch.sampled).run(repetitions, slow=slow),
            "ragged": Series(peers, uneven, "sampled tokens", uneven.sampled).run(repetitions, slow=slow),
            "multi_turn": Series(peers, talk, "new prompt and sampled tokens", talk.tokens).run(repetitions, slow=slow),
        }
    finally:
        for peer in peers:
            peer.close()


def _large(clock: Clock, seed: int) -> dict[str, Series]:
    peers: list[Peer] = [Springtide("12.8M", clock), Generate("12.8M", clock)]
    batch, talk = uniform(seed), conversation(seed, turns=4)
    return {
        "uniform_12.8M": Series(peers, batch, "sampled tokens", batch.sampled).run(3),
        "multi_turn_12.8M": Series(peers, talk, "new prompt and sampled tokens", talk.tokens).run(3),
    }


def _vllm(arguments: argparse.Namespace, *, eager: bool) -> Callable[[], Peer]:
    return lambda: Vllm("0.85M", arguments.clock, arguments.vllm_python, eager=eager, threads=arguments.threads)


def _figures(results: dict[str, Series], exact: dict[str, Any], missing: dict[str, str]) -> dict[str, Any]:
    turns = results["multi_turn"]
    ratios: dict[str, Any] = {name: round(turns.ratio(name), 3) for name in turns.seconds if name != "springtide"}
    return {
        "token_identical": all(exact["token_identical"].values()),
        "max_logprob_error": max(exact["max_logprob_error"].values()),
        "uniform_ratio": round(results["uniform"].ratio("generate"), 3),
        "ragged_ratio": round(results["ragged"].ratio("generate"), 3),
        "multi_turn": ratios | {name: f"not run: {reason}" for name, reason in missing.items()},
    }


def _print_table(results: dict[str, Series], exact: dict[str, Any], missing: dict[str, str]) -> None:
    for name, identical in exact["token_identical"].items():
        error = exact["max_logprob_error"][name]
        print(f"{name:10} greedy tokens equal generate: {identical}   largest log-prob error: {error:.1e}")
    rows = [row for title, series in results.items() for row in series.rows(title)]
    print(table(["workload", "engine", "tokens/s", "lowest to highest", "ours / theirs", "KV hit rate"], rows))
    for name, reason in missing.items():
        print(f"{name}: not run, {reason}")


def _cpu() -> str:
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return models[0].split(":")[1].strip() if models else platform.machine()


def _arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--vllm-python", type=Path, help="Python of an environment with vLLM for the CPU")
    made.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: for one thread on a machine in use")
    made.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of every engine")
    return made.parse_args()


if __name__ == "__main__":
    main()
