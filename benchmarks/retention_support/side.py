"""One run of one arm: a training as `springtide train` makes it, whose episodes are replayed, timed by its journal."""

import sqlite3
import tempfile
from pathlib import Path
from unittest import mock

import msgspec

from retention_support.replay import replayer
from springtide.config import Recipe
from springtide.core.errors import SpringtideError
from springtide.engines.config import TorchEngineConfig
from springtide.environments.config import WordGameConfig
from springtide.evaluation.config import EvaluationConfig
from springtide.launch import assembly
from springtide.launch.customize import Customize
from springtide.launch.train import train
from springtide.policy.config import TinyModelConfig
from springtide.recipe import dump_recipe
from springtide.rollout.config import RolloutConfig
from springtide.scheduling.config import SchedulingConfig
from springtide.simulation.workload import Workload
from springtide.telemetry.jsonl import read_metrics
from springtide.telemetry.run_folder import RunFolder
from springtide.training.config import CheckpointConfig, OptimizerConfig, TrainingConfig
from springtide.training.trainer import TorchTrainer

MODEL = TinyModelConfig(
    device="cpu", layers=2, hidden=512, heads=8, kv_heads=2, intermediate=2048, vocabulary=512, max_context=4096
)


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is scheduled. `host` tokens of KV in host memory."""

    retention: str = "lru"
    admission: str = "fixed"
    concurrent: int = 128
    kv: str = "keep"
    host: int = 0


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """What all arms have in common. `warm` and `steps`: train steps before, and in the measurement."""

    capacity: int
    max_batch: int
    staleness: int
    warm: int
    steps: int
    decode_steps: int = 8


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """`rate`: trained tokens per second in the measured steps; `seconds` of these; `notes`: metrics, as they grew."""

    rate: float
    seconds: float
    notes: dict[str, float]


class EnoughMeasuredError(SpringtideError):
    """Ends a run at the first step that is not measured: without a tail in which no more episodes begin."""


def recipe(arm: Arm, size: Size, work: Workload, seed: int) -> Recipe:
    return Recipe(
        name="retention",
        seed=seed,
        environment=WordGameConfig(),
        model=MODEL,
        rollout=RolloutConfig(max_context=work.context + 256),
        engine=TorchEngineConfig(
            capacity_tokens=size.capacity,
            host_capacity_tokens=arm.host,
            max_batch=size.max_batch,
            decode_steps=size.decode_steps,
            kv_at_update=arm.kv,
        ),
        scheduling=SchedulingConfig(
            mode="async",
            groups_per_step=work.groups_per_step,
            group_size=work.group_size,
            steps=size.warm + size.steps + 100,
            staleness=size.staleness,
            max_concurrent=arm.concurrent,
            admission=arm.admission,
            retention=arm.retention,
        ),
        training=TrainingConfig(optimizer=OptimizerConfig(learning_rate=1e-5), tokens_per_micro_batch=4096),
        checkpoint=CheckpointConfig(every=100_000),
        evaluation=EvaluationConfig(tasks=0),
    )


def run(arm: Arm, size: Size, work: Workload, seed: int) -> Timing:
    """ValueError if the run did not come to its measured end."""
    made = recipe(arm, size, work, seed)
    last = size.warm + size.steps

    def limited(trainer: TorchTrainer) -> None:
        step = trainer.step

        def stopping(**arguments: object) -> object:
            if arguments["step"] > last:
                raise EnoughMeasuredError("measured")
            return step(**arguments)

        trainer.step = stopping

    player = replayer(work, seed)
    with tempfile.TemporaryDirectory() as scratch, mock.patch.object(assembly, "Player", player):
        folder = RunFolder.create(name=made.name, recipe_text=dump_recipe(made), path=Path(scratch) / "run")
        try:
            train(recipe=made, folder=folder, customize=Customize(trainer=limited))
        except EnoughMeasuredError:
            return timing(folder, first=size.warm, last=last)
    raise ValueError("the run ended before it was measured")


def timing(folder: RunFolder, *, first: int, last: int) -> Timing:
    """From the end of step `first` to the end of step `last`."""
    connection = sqlite3.connect(folder.journal)
    rows = connection.execute("SELECT time, body FROM entries WHERE tag = 'step_finished' ORDER BY seq").fetchall()
    limits = connection.execute("SELECT body FROM entries WHERE tag = 'concurrency_set' ORDER BY seq").fetchall()
    connection.close()
    bodies = [msgspec.json.decode(body) for _, body in rows]
    tokens = sum(body["trained_tokens"] - body["zero_advantage_tokens"] for body in bodies[first:last])
    seconds = rows[last - 1][0] - rows[first - 1][0]
    by_step = {
        record.step: record.metrics for record in read_metrics(folder.metrics) if "step/seconds" in record.metrics
    }
    before, after = by_step[first], by_step[last]
    notes = {name: value - before.get(name, 0.0) for name, value in after.items() if _grows(name)}
    notes |= {name: after[name] for name in ("staleness/mean", "train/ess", "train/behaviour_kl") if name in after}
    if limits:
        notes["limit"] = float(msgspec.json.decode(limits[-1][0])["concurrent"])
    return Timing(rate=tokens / seconds, seconds=seconds, notes=notes)


def _grows(name: str) -> bool:
    gauges = ("engine/hit_rate", "engine/hot_tokens", "engine/warm_tokens")
    return name.startswith(("ledger/", "engine/")) and name not in gauges and not name.endswith("unattributed_share")
