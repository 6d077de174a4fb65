"""The recipe: one model that composes what each package declares."""

from typing import Self

from pydantic import Field, model_validator

from springtide.diagnosis.config import DiagnosisConfig
from springtide.engines.config import EngineConfig, TorchEngineConfig
from springtide.environments.config import EnvironmentConfig
from springtide.evaluation.config import EvaluationConfig
from springtide.policy.config import ModelConfig, TinyModelConfig
from springtide.rollout.config import RolloutConfig
from springtide.sandbox.config import SandboxConfig
from springtide.scheduling.config import SchedulingConfig, StrictModel
from springtide.training.config import CheckpointConfig, TrainingConfig, WarmStartConfig


class Recipe(StrictModel):
    """Everything that determines a run."""

    name: str = Field("run", pattern=r"^[a-z0-9][a-z0-9_-]*$", description="Prefix of the run folder.")
    description: str = ""
    seed: int = Field(0, ge=0, lt=2**63)
    environment: EnvironmentConfig
    model: ModelConfig = TinyModelConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    rollout: RolloutConfig = RolloutConfig()
    engine: EngineConfig = TorchEngineConfig()
    scheduling: SchedulingConfig = SchedulingConfig()
    training: TrainingConfig = TrainingConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    diagnosis: DiagnosisConfig = DiagnosisConfig()
    sandbox: SandboxConfig = SandboxConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [*self._context_problems(), *self._group_problems(), *self._sampling_problems()]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _context_problems(self) -> list[str]:
        problems = []
        context = self.rollout.max_context
        if isinstance(self.model, TinyModelConfig):
            if context > self.model.max_context:
                problems.append(
                    f"rollout.max_context = {context} is above model.max_context = {self.model.max_context}: "
                    "lower the first or raise the second."
                )
            if self.model.hidden % (2 * self.model.heads):
                problems.append(
                    f"model.hidden = {self.model.hidden} does not give each of model.heads = {self.model.heads} an "
                    "even width: make it a multiple of twice the heads."
                )
            if self.model.heads % self.model.kv_heads:
                problems.append(
                    f"model.heads = {self.model.heads} is no multiple of model.kv_heads = {self.model.kv_heads}: "
                    "each KV head serves equally many heads."
                )
        if context > self.engine.capacity_tokens:
            problems.append(
                f"engine.capacity_tokens = {self.engine.capacity_tokens} is below rollout.max_context = {context}: "
                "the engine must hold at least one whole episode."
            )
        if self.rollout.max_tokens_per_turn >= context:
            problems.append(
                f"rollout.max_tokens_per_turn = {self.rollout.max_tokens_per_turn} leaves no room for a prompt in "
                f"rollout.max_context = {context}: lower the first or raise the second."
            )
        return problems

    def _group_problems(self) -> list[str]:
        problems = []
        scheduling = self.scheduling
        if scheduling.group_size < 2:
            problems.append(
                f"scheduling.group_size = {scheduling.group_size} is too small: an advantage compares the episodes of "
                "a group, so it takes at least 2."
            )
        elif scheduling.min_valid > scheduling.group_size:
            problems.append(
                f"scheduling.min_valid = {scheduling.min_valid} is above scheduling.group_size = "
                f"{scheduling.group_size}: no group could ever be trained on."
            )
        if scheduling.mode == "sync" and scheduling.window:
            problems.append(
                f"scheduling.window = {scheduling.window} is not allowed in sync, which consumes groups in issue "
                'order: leave it out, or set scheduling.mode = "async".'
            )
        if scheduling.mode == "sync":
            problems += [
                f'scheduling.{name} = "{value}" is not allowed in sync, where all episodes of a batch take their turns '
                f'together: leave it out, or set scheduling.mode = "async".'
                for name, value, plain in (
                    ("retention", scheduling.retention, "lru"),
                    ("admission", scheduling.admission, "fixed"),
                    ("priority", scheduling.priority, "oldest"),
                )
                if value != plain
            ]
        if scheduling.mode == "async" and (scheduling.window or 0) > scheduling.groups_per_step:
            problems.append(
                f"scheduling.window = {scheduling.window} is above scheduling.groups_per_step = "
                f"{scheduling.groups_per_step}: by leaving the issue order further, groups could outgrow the staleness "
                "bound. Lower the first or raise the second."
            )
        if scheduling.mode == "async" and self.engine.kv_gap > max(1, scheduling.staleness):
            problems.append(
                f"engine.kv_gap = {self.engine.kv_gap} is above scheduling.staleness = {scheduling.staleness}: no "
                "episode lives on that long, so that KV never gets as old. Lower the first or raise the second."
            )
        mini_batches = self.training.algorithm.mini_batches
        if mini_batches > scheduling.groups_per_step:
            problems.append(
                f"training.algorithm.mini_batches = {mini_batches} is above scheduling.groups_per_step = "
                f"{scheduling.groups_per_step}: a mini-batch takes whole groups. Lower the first or raise the second."
            )
        return problems

    def _sampling_problems(self) -> list[str]:
        if self.scheduling.steps > 0 and self.rollout.temperature == 0:
            return [
                "rollout.temperature = 0 makes all episodes of a group alike, so that nothing can be learned: it takes "
                "a number above 0 unless scheduling.steps is 0."
            ]
        return []
