"""The policy network: made tiny from a seed, read from a folder, written to a folder that `transformers` loads.

Weights are kept in float32, the trainer's master copy; what computes or serves in less casts. Dropout is off, so that
the probabilities that are trained are those that were sampled from.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging

from springtide.core.errors import UsageError
from springtide.policy.config import PretrainedModelConfig, TinyModelConfig
from springtide.policy.tokenizer import TransformersTokenizer


def build_tiny(config: TinyModelConfig, *, vocabulary_size: int, seed: int) -> PreTrainedModel:
    """A Qwen3 causal LM in float32 on the CPU; its weights are a function of (config, vocabulary_size, seed)."""
    if config.hidden % config.heads or (config.hidden // config.heads) % 2:
        raise UsageError(
            f"model.hidden {config.hidden} does not split into {config.heads} heads of even size; "
            f"use a multiple of {2 * config.heads}."
        )
    if config.heads % config.kv_heads:
        raise UsageError(f"model.kv_heads {config.kv_heads} does not divide model.heads {config.heads}; use a divisor.")
    shape = Qwen3Config(
        vocab_size=vocabulary_size,
        hidden_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.hidden // config.heads,
        intermediate_size=config.intermediate,
        max_position_embeddings=config.max_context,
        tie_word_embeddings=True,
        initializer_range=config.initializer_range,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(shape)
    return _prepared(model.float())


def load_pretrained(config: PretrainedModelConfig, device: torch.device) -> PreTrainedModel:
    """The causal LM in the folder `config.path`, in float32 on `device`. UsageError if the folder does not hold one."""
    folder = require_folder(config)
    if not any(folder.glob("*.safetensors")):
        raise UsageError(
            f"model.path '{config.path}' has no *.safetensors file; download the model's weights in that format."
        )
    shape = read_config(config)
    if type(shape) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UsageError(
            f"model.path '{config.path}' holds a model of type '{shape.model_type}', which is no causal language model "
            "that transformers implements; choose another."
        )
    try:
        with _no_progress_bars():
            model = AutoModelForCausalLM.from_pretrained(
                folder, config=shape, dtype=torch.float32, local_files_only=True
            )
    except Exception as error:  # transformers and safetensors raise many kinds for files that do not fit together
        raise UsageError(
            f"model.path '{config.path}' cannot be loaded ({_first_line(error)}); check that its download is complete."
        ) from error
    if model.get_output_embeddings() is None:
        raise UsageError(
            f"model.path '{config.path}' holds a model of type '{shape.model_type}' without an output head; "
            "choose a causal language model."
        )
    checkpoint_activations(model, config)
    return _prepared(model.to(device))


def build_described(folder: Path) -> PreTrainedModel:
    """The causal LM that the config.json in `folder` describes, in float32 on the CPU, for weights from elsewhere.

    OSError, ValueError or KeyError when the file cannot be read.
    """
    shape = AutoConfig.from_pretrained(folder, local_files_only=True)
    return _prepared(AutoModelForCausalLM.from_config(shape, dtype=torch.float32))


def checkpoint_activations(model: Any, config: PretrainedModelConfig) -> None:
    """As `config` says. UsageError where the model cannot."""
    if not config.gradient_checkpointing:
        return
    # Renamed in the course of transformers 5; the old name warns where the new one exists.
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise UsageError(
            f"model.gradient_checkpointing is true, but the {type(model).__name__} in model.path '{config.path}' "
            "cannot compute its activations again; set it to false."
        ) from error


def read_config(config: PretrainedModelConfig) -> Any:
    """The model's config in the folder `config.path`. UsageError if there is none that transformers can read."""
    folder = require_folder(config)
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"model.path '{config.path}' has a config.json that transformers cannot read ({_first_line(error)}); "
            "use a model folder as published on the Hugging Face hub."
        ) from error


def require_folder(config: PretrainedModelConfig) -> Path:
    """`config.path`, which exists and has a config.json. UsageError otherwise."""
    folder = Path(config.path).expanduser()
    if not folder.is_dir():
        raise UsageError(
            f"model.path '{config.path}' is not a folder; give the folder of a downloaded Hugging Face model."
        )
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"model.path '{config.path}' has no config.json; give the folder that holds the model's files themselves."
        )
    return folder


def served_copy(model: Any, dtype: torch.dtype) -> Any:
    """A copy of `model` whose weights are in `dtype`, for an engine to take over.

    Buffers that are no weights keep their own precision, as they do under autocast and when transformers loads a model:
    rotary frequencies rounded to bfloat16 are off by up to 0.2 %, which is a radian after five hundred tokens.
    """
    served = copy.deepcopy(model).to(dtype)
    for module, original in zip(served.modules(), model.modules(), strict=True):
        for name in original._non_persistent_buffers_set:
            buffer = original._buffers[name]
            module._buffers[name] = None if buffer is None else buffer.clone()
    return served


def export(model: PreTrainedModel, tokenizer: TransformersTokenizer, folder: Path) -> None:
    """Write weights, config, tokenizer and chat template so that `from_pretrained` of `transformers` loads `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with _no_progress_bars():
        model.save_pretrained(folder)
    tokenizer.inner.save_pretrained(folder)
    stops = list(tokenizer.stop_tokens)
    GenerationConfig(eos_token_id=stops, pad_token_id=tokenizer.pad_token).save_pretrained(folder)


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """The terminal belongs to the run's own view."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _prepared(model: Any) -> PreTrainedModel:
    """Without dropout, in train mode: what gradient checkpointing in transformers asks for."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0
    model.train()
    return model


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
