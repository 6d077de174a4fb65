"""What every engine is asked to do: fixed seeds, fixed lengths, nothing stops early."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 512
BATCH = 64
PROMPT = 64
NEW = 64
RAGGED_REQUESTS = 192
TURNS = 8
TURN_PROMPT = 112
TURN_NEW = 16
CONTEXT = TURNS * (TURN_PROMPT + TURN_NEW) + 32
"""A little more than the longest path, so that no peer ends a turn early."""

SHAPES = {
    "0.85M": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4},
    "12.8M": {"hidden_size": 384, "intermediate_size": 1152, "num_hidden_layers": 7, "num_attention_heads": 6},
}


def build(shape: str) -> Any:
    """A random Qwen3 of a size in `SHAPES`; the same weights at each call."""
    torch.manual_seed(0)
    settings = SHAPES[shape]
    config = Qwen3Config(
        **settings,
        vocab_size=VOCABULARY,
        num_key_value_heads=2,
        head_dim=settings["hidden_size"] // settings["num_attention_heads"],
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = Qwen3ForCausalLM(config).eval()
    # Nothing stops early: every engine samples exactly the tokens it is asked for.
    model.generation_config.eos_token_id = None
    return model


def export(shape: str, folder: Path) -> None:
    """The model as an engine in another process loads it."""
    build(shape).save_pretrained(folder)


@dataclass(frozen=True)
class Batch:
    """Independent requests: `prompts` and how many tokens to sample after each."""

    prompts: list[list[int]]
    new: list[int]

    @property
    def sampled(self) -> int:
        return sum(self.new)


@dataclass(frozen=True)
class Conversation:
    """`prompts[turn][session]` are the new tokens that a session reads in a turn; it then samples `TURN_NEW`."""

    prompts: list[list[list[int]]]

    @property
    def tokens(self) -> int:
        """New prompt tokens and sampled tokens."""
        return sum(len(prompt) + TURN_NEW for turn in self.prompts for prompt in turn)

    @property
    def represented(self) -> int:
        """Tokens that a request repeats from the session's earlier turns: what a cache can save."""
        sessions = len(self.prompts[0])
        return sum(sessions * turn * (TURN_PROMPT + TURN_NEW) for turn in range(len(self.prompts)))


def uniform(seed: int = 0) -> Batch:
    return Batch(_tokens(1 + 1000 * seed, BATCH, PROMPT), [NEW] * BATCH)


def ragged(seed: int = 0) -> Batch:
    """Lengths with maximum / mean = 3, in random order: many short, few long, as answers are."""
    fractions = torch.linspace(0, 1, RAGGED_REQUESTS, dtype=torch.float64)
    # x**2 has mean 1/3 of its maximum.
    lengths = (fractions**2 * 3 * NEW).round().clamp(min=1).long()
    order = torch.randperm(RAGGED_REQUESTS, generator=torch.Generator().manual_seed(2 + 1000 * seed))
    return Batch(_tokens(3 + 1000 * seed, RAGGED_REQUESTS, PROMPT), lengths[order].tolist())


def conversation(seed: int = 0, turns: int = TURNS) -> Conversation:
    return Conversation([_tokens(10 + turn + 1000 * seed, BATCH, TURN_PROMPT) for turn in range(turns)])


def _tokens(seed: int, rows: int, length: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    drawn: list[list[int]] = torch.randint(1, VOCABULARY, (rows, length), generator=generator).tolist()
    return drawn
