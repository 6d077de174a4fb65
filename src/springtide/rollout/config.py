"""Settings of episodes."""

from pydantic import Field

from springtide.scheduling.config import StrictModel


class RolloutConfig(StrictModel):
    """How an episode is played and sampled."""

    max_turns: int = Field(10, ge=1, description="Assistant turns per episode.")
    max_tokens_per_turn: int = Field(48, ge=1, description="Sampled tokens per turn.")
    max_context: int = Field(768, ge=8, description="Tokens per episode, prompt included.")
    temperature: float = Field(1.0, ge=0.0, description="Sampling temperature in training.")
    top_k: int = Field(0, ge=0, description="Keep the k most likely tokens; 0 keeps all.")
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="Keep the smallest set of tokens with this mass.")
    retry_backoff: float = Field(0.1, ge=0.0, description="Seconds before an invalid episode's next attempt.")
