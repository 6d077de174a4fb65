"""The recipe: one model that composes what each package declares."""

from pydantic import Field

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
    seed: int = Field(0, ge=0)
    environment: EnvironmentConfig
    model: ModelConfig = TinyModelConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    rollout: RolloutConfig = RolloutConfig()
    engine: EngineConfig = TorchEngineConfig()
    scheduling: SchedulingConfig = SchedulingConfig()
    training: TrainingConfig = TrainingConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    sandbox: SandboxConfig = SandboxConfig()
