"""The model of a run: its config and tokenizer; weights live in checkpoints.

`model/` in the run folder is written once, atomically, when the run starts. From the first checkpoint on, resuming and
exporting need nothing of the folder that the model came from.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import GenerationConfig
from transformers.utils import logging as transformers_logging

from springtide.config import Recipe
from springtide.core.demonstration import Demonstration
from springtide.core.errors import RunDamagedError, UsageError
from springtide.engines.blocks import Blocks
from springtide.policy.config import PretrainedModelConfig, TinyModelConfig
from springtide.policy.device import choose_device
from springtide.policy.model import (
    build_described,
    build_tiny,
    checkpoint_activations,
    load_pretrained,
    read_config,
)
from springtide.policy.tokenizer import TransformersTokenizer, fit_tokenizer, load_tokenizer

transformers_logging.disable_progress_bar()

TOKENIZER_SAMPLE = 512
"""Demonstrations whose text a tiny model's tokenizer is fitted to."""


def prepare_model_folder(
    folder: Path, recipe: Recipe, demonstration: Callable[[int], Demonstration | None], extra_texts: Sequence[str]
) -> None:
    """Write `folder` unless it exists. UsageError when a pretrained model's folder is not usable."""
    if folder.is_dir():
        return
    temporary = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    if isinstance(recipe.model, PretrainedModelConfig):
        shape = read_config(recipe.model)
        tokenizer = load_tokenizer(recipe.model)
        shape.save_pretrained(temporary)
    else:
        texts = [*_demonstration_texts(demonstration), *extra_texts]
        tokenizer = fit_tokenizer(texts, vocabulary=recipe.model.vocabulary)
        model = build_tiny(recipe.model, vocabulary_size=tokenizer.vocabulary_size, seed=recipe.seed)
        model.config.save_pretrained(temporary)
    tokenizer.inner.save_pretrained(temporary)
    # A turn must go on ending where it ended at first, also where only this file of the model's names the token.
    GenerationConfig(eos_token_id=list(tokenizer.stop_tokens)).save_pretrained(temporary)
    os.replace(temporary, folder)


def _demonstration_texts(demonstration: Callable[[int], Demonstration | None]) -> list[str]:
    texts = []
    for index in range(TOKENIZER_SAMPLE):
        shown = demonstration(index)
        if shown is None:
            break
        texts += [message.text for message in shown.messages]
    return texts


def open_tokenizer(folder: Path, *, name: str = "") -> TransformersTokenizer:
    """The tokenizer of a run's model; messages call it `name`, or by its folder. RunDamagedError if it is not what was
    written, since what cannot be read is never written."""
    try:
        return load_tokenizer(PretrainedModelConfig(path=str(folder)), name=name)
    except UsageError as error:
        raise RunDamagedError(
            f"The model folder {folder} of the run has lost its tokenizer; restore it from a copy."
        ) from error


def initial_model(recipe: Recipe, tokenizer: TransformersTokenizer) -> Any:
    """The model before any training, in float32 on the run's device."""
    device = choose_device(recipe.model.device)
    if isinstance(recipe.model, TinyModelConfig):
        tiny = build_tiny(recipe.model, vocabulary_size=tokenizer.vocabulary_size, seed=recipe.seed)
        return tiny.to(device)
    return load_pretrained(recipe.model, device)


def resumed_model(folder: Path, recipe: Recipe) -> Any:
    """The same for a run that has checkpoints, which bring the weights."""
    model = empty_model(folder)
    if isinstance(recipe.model, PretrainedModelConfig):
        checkpoint_activations(model, recipe.model)
    return model.to(choose_device(recipe.model.device))


def empty_model(folder: Path) -> Any:
    """The architecture of a run's model, on the CPU, for weights from a checkpoint."""
    try:
        return build_described(folder)
    except (OSError, ValueError, KeyError) as error:
        raise RunDamagedError(
            f"The model folder {folder} of the run has a config.json that cannot be read; restore it from a copy."
        ) from error


def require_tokenizer_matches(model: Any, tokenizer: TransformersTokenizer) -> None:
    """UsageError if the model has no row for some token."""
    rows = model.get_input_embeddings().weight.shape[0]
    if rows < tokenizer.vocabulary_size:
        raise UsageError(
            f"model.path: the tokenizer knows {tokenizer.vocabulary_size} tokens, but the model embeds only {rows}; "
            "use the tokenizer that belongs to the model."
        )


def require_context_fits(model: Any, recipe: Recipe) -> None:
    """UsageError if an episode may grow longer than the model or the engine has room for."""
    context, capacity = recipe.rollout.max_context, recipe.engine.capacity_tokens
    positions = model.config.get_text_config().max_position_embeddings
    if context > positions:
        raise UsageError(
            f"rollout.max_context = {context} is above the {positions} tokens that the model was made for: lower it."
        )
    largest = Blocks(capacity).largest
    if context > largest:
        raise UsageError(
            f"engine.capacity_tokens = {capacity} holds sequences of up to {largest} tokens (powers of two), "
            f"but rollout.max_context is {context}: raise the first to {2 * largest} or lower the second."
        )
