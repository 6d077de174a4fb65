"""Settings of held-out evaluation."""

from pydantic import Field

from springtide.scheduling.config import StrictModel


class EvaluationConfig(StrictModel):
    tasks: int = Field(200, ge=0, description="Held-out tasks evaluated before and after training; 0: none.")
    every: int = Field(0, ge=0, description="Train steps between evaluations on the way; 0: only before and after.")
    tasks_on_the_way: int = Field(64, ge=1, description="Tasks of an evaluation on the way.")
    temperature: float = Field(1.0, ge=0.0)
    success_reward: float = Field(1.0, description="Reward from which an episode counts as a success.")
