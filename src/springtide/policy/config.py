"""Which model is trained."""

from typing import Annotated, Literal

from pydantic import Field

from springtide.scheduling.config import StrictModel

Device = Literal["auto", "cpu"]

_DEVICE = "Where the engine and the trainer compute; auto: the accelerator that PyTorch sees, else the CPU."


class TinyModelConfig(StrictModel):
    """A small Qwen3-shaped model with random weights and a tokenizer fitted to the environment's own text."""

    type: Literal["tiny"] = "tiny"
    device: Device = Field("auto", description=_DEVICE)
    layers: int = Field(2, ge=1)
    hidden: int = Field(128, ge=16)
    heads: int = Field(8, ge=1)
    kv_heads: int = Field(8, ge=1)
    intermediate: int = Field(256, ge=16)
    vocabulary: int = Field(512, ge=300, description="Size of the byte-level BPE vocabulary.")
    max_context: int = Field(1024, ge=64)
    initializer_range: float = Field(
        0.06,
        gt=0,
        description="Standard deviation of the initial weights; small models learn to copy sooner from 0.06.",
    )


class PretrainedModelConfig(StrictModel):
    """A Hugging Face causal LM in a local folder (config, safetensors, tokenizer with a chat template)."""

    type: Literal["pretrained"] = "pretrained"
    path: str = Field(description="Folder of the model, relative to where the command is started.")
    device: Device = Field("auto", description=_DEVICE)
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="auto: bfloat16 on an accelerator that multiplies it in hardware, else float32."
    )
    gradient_checkpointing: bool = False


ModelConfig = Annotated[TinyModelConfig | PretrainedModelConfig, Field(discriminator="type")]
