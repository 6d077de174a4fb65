"""Our side: a run as `springtide train` makes it, timed by what its journal says.

Nothing is switched off that a user has: journal, metrics, TensorBoard, status and the checkpoint at the end.
"""

import sqlite3
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from springtide.config import Recipe
from springtide.engines.config import TorchEngineConfig
from springtide.environments.config import CustomConfig
from springtide.evaluation.config import EvaluationConfig
from springtide.launch.train import train
from springtide.policy.config import PretrainedModelConfig
from springtide.recipe import dump_recipe
from springtide.rollout.config import RolloutConfig
from springtide.scheduling.config import SchedulingConfig
from springtide.telemetry.jsonl import read_metrics
from springtide.telemetry.run_folder import RunFolder
from springtide.training.config import AlgorithmConfig, CheckpointConfig, OptimizerConfig, TrainingConfig
from trl_support.task import CONTEXT, Timing, Workload


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """How we run a workload. `staleness` counts in async only; 0 leaves a limit at the default."""

    mode: Literal["sync", "async"] = "sync"
    staleness: int = 1
    concurrent: int = 512
    max_batch: int = 128
    decode_steps: int = 8
    micro_batch: int = 2048
    engine_threads: int = 0
    trainer_threads: int = 0

    @property
    def tail(self) -> int:
        """Steps at the end of an async run during which no more rollouts begin: they are not measured."""
        return self.staleness + 1 if self.mode == "async" else 0


def recipe(work: Workload, setting: Setting, model: Path, steps: int) -> Recipe:
    options = {"turns": work.turns, "mean": work.mean, "sigma": work.sigma, "seed": work.seed}
    return Recipe(
        name="vs-trl",
        seed=work.seed,
        environment=CustomConfig(path=f"{Path(__file__).with_name('task.py')}:LookUps", options=options),
        model=PretrainedModelConfig(path=str(model)),
        rollout=RolloutConfig(max_turns=work.turns, max_tokens_per_turn=work.tokens, max_context=CONTEXT),
        engine=TorchEngineConfig(
            max_batch=setting.max_batch, decode_steps=setting.decode_steps, threads=setting.engine_threads
        ),
        scheduling=SchedulingConfig(
            mode=setting.mode,
            groups_per_step=work.groups,
            group_size=work.size,
            steps=steps,
            staleness=setting.staleness,
            max_concurrent=setting.concurrent,
        ),
        training=TrainingConfig(
            optimizer=OptimizerConfig(learning_rate=work.learning_rate),
            algorithm=AlgorithmConfig(),
            tokens_per_micro_batch=setting.micro_batch,
            threads=setting.trainer_threads,
        ),
        checkpoint=CheckpointConfig(every=100_000),
        evaluation=EvaluationConfig(tasks=0),
    )


def run(work: Workload, setting: Setting, model: str, steps: int) -> Timing:
    """One run of `steps` measured and warm-up steps and the tail."""
    made = recipe(work, setting, Path(model), steps + setting.tail)
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder.create(name=made.name, recipe_text=dump_recipe(made), path=Path(scratch) / "run")
        train(recipe=made, folder=folder)
        return timing(folder)


def timing(folder: RunFolder) -> Timing:
    """The steps of a finished run. Notes: of its last metrics, those about where time went and what was stale."""
    connection = sqlite3.connect(folder.journal)
    rows = connection.execute("SELECT time, body FROM entries WHERE tag = 'step_finished' ORDER BY seq").fetchall()
    connection.close()
    bodies = [msgspec.json.decode(body) for _, body in rows]
    tokens = [body["trained_tokens"] - body["zero_advantage_tokens"] for body in bodies]
    last = [record.metrics for record in read_metrics(folder.metrics)][-1]
    kept = ("ledger/", "staleness/", "rollout/", "engine/", "train/ess", "invalid/")
    notes = {name: value for name, value in last.items() if name.startswith(kept)}
    return Timing(times=[time for time, _ in rows], tokens=tokens, notes=notes)
