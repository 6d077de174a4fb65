"""Settings of the update, the warm start and the checkpoints."""

from typing import Annotated, Literal

from pydantic import Field

from springtide.scheduling.config import StrictModel

Compute = Literal["auto", "float32", "bfloat16"]
Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(StrictModel):
    """AdamW (Loshchilov & Hutter, arXiv 1711.05101) with a warm-up and a schedule."""

    learning_rate: float = Field(1e-6, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    eps: float = Field(1e-8, gt=0)
    max_grad_norm: float = Field(1.0, gt=0)
    warmup_steps: int = Field(0, ge=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    final_fraction: float = Field(0.1, ge=0, le=1, description="Learning rate at the end, as a fraction of its peak.")


class AlgorithmConfig(StrictModel):
    """GRPO (Shao et al., arXiv 2402.03300) and its common options."""

    type: Literal["grpo"] = "grpo"
    normalize_std: bool = Field(
        True, description="Divide advantages by the group's std; False is Dr.GRPO (arXiv 2503.20783)."
    )
    clip_low: float = Field(0.2, gt=0)
    clip_high: float = Field(0.2, gt=0, description="Above clip_low: clip-higher (DAPO, arXiv 2503.14476).")
    importance_cap: float | None = Field(
        2.0,
        gt=0,
        description="Cap of the truncated importance weight between sampling and training policy; "
        "'none': no weight, the clipped ratio is taken to the sampling policy.",
    )
    kl_coefficient: float = Field(0.0, ge=0, description="Weight of the k3 KL to the reference policy.")
    mini_batches: int = Field(
        1, ge=1, description="Optimizer updates per train step, over disjoint parts of the batch."
    )


class WarmStartConfig(StrictModel):
    """Supervised training on demonstrations before RL."""

    steps: int = Field(0, ge=0, description="0: no warm start.")
    batch_size: int = Field(64, ge=1)
    demonstrations: int = Field(4096, ge=1, description="Demonstrations drawn from training seeds.")
    compute: Compute = Field(
        "auto",
        description="What matrices are multiplied in; auto: bfloat16 where the hardware is fast at it. "
        "The weights stay float32.",
    )
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-3, warmup_steps=20, schedule="cosine")


class TrainingConfig(StrictModel):
    optimizer: OptimizerConfig = OptimizerConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    tokens_per_micro_batch: int = Field(8192, ge=64, description="Padded tokens per forward pass.")
    compute: Compute = Field(
        "auto",
        description="What matrices are multiplied in; auto: as the engine does, so that log-probs agree. "
        "The weights stay float32.",
    )
    threads: int = Field(0, ge=0, description="Torch threads of the trainer lane; 0 decides by mode and cores.")


class CheckpointConfig(StrictModel):
    """Step 0 and the last point are always kept, besides the newest `keep` and every `keep_every`-th."""

    every: int = Field(10, ge=1, description="Train steps between checkpoints.")
    keep: int = Field(3, ge=1, description="Newest checkpoints kept.")
    keep_every: int = Field(50, ge=1, description="Checkpoints at multiples of this stay for rolling back.")
