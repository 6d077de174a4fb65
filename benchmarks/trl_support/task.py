"""The task both sides train on, and the model folder that both load.

A policy with random weights cannot write a tool call, so the protocol does not depend on what it writes: each of its
turns but the last counts as one call of the tool `look_up`, which sleeps and answers. Both sides then sample the same
number of turns, of the same length, after the same tokens. The reward is the share of vowels in what was said, so that
hardly ever two members of a group earn the same and every sampled token has a gradient.
"""

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from springtide.core.message import Message, ToolSchema
from springtide.core.outcome import Ending, Outcome, Valid
from springtide.core.task import Task
from springtide.policy.config import TinyModelConfig
from springtide.policy.model import build_tiny, export
from springtide.policy.tokenizer import fit_tokenizer
from springtide.ports.environment import Observation
from springtide.rollout.tool_calls import schema_object

SYSTEM = "say which word comes first"
TOOL = ToolSchema(
    name="look_up",
    description="Look up a word.",
    parameters={
        "type": "object",
        "properties": {"word": {"type": "string", "description": "The word."}},
        "required": ["word"],
    },
)
"""As TRL derives it from the function `look_up` on its side."""

HOW_TO_CALL = 'Call a tool by <tool_call>\n{"name": "NAME", "arguments": {}}\n</tool_call>'
"""What the chat template says of it."""

WORDS_PER_PROMPT = 12
CONTEXT = 1024


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A train step is `groups` x `size` episodes of `turns` sampled turns of at most `tokens` tokens; between two turns
    the tool takes log-normal time of this mean (seconds) and shape. One optimizer update per step on both sides."""

    groups: int = 8
    size: int = 8
    turns: int = 1
    tokens: int = 64
    mean: float = 0.0
    sigma: float = 1.0
    learning_rate: float = 1e-4
    seed: int = 0

    @property
    def episodes(self) -> int:
        return self.groups * self.size


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """What a user of TRL may choose. `ahead` batches are generated together and trained on one after another, so that
    the last is `ahead` - 1 versions old; `micro_batches` cut an update; OpenMP's threads wait as by default or as short
    as springtide's, with which the process has to start."""

    tools: Literal["stock", "gathered"] = "stock"
    continuous_batching: bool = False
    ahead: int = 1
    micro_batches: int = 1
    cache: str = ""
    threads: int = 1
    waits: Literal["default", "short"] = "default"


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """A run: when each step had been applied (seconds, any origin) and how many tokens it had trained on."""

    times: list[float]
    tokens: list[int]
    notes: dict[str, float] = {}

    def rate(self, *, after: int, upto: int) -> float:
        """Trained tokens per second from the end of step `after` (1-based) to the end of step `upto`."""
        return sum(self.tokens[after:upto]) / (self.times[upto - 1] - self.times[after - 1])

    def seconds(self, *, after: int, upto: int) -> float:
        return self.times[upto - 1] - self.times[after - 1]


def words(seed: int, number: int) -> list[str]:
    """Made-up words of two or three syllables."""
    rng = random.Random(f"words {seed}")
    return [
        "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.choice((2, 3))))
        for _ in range(number)
    ]


def question(seed: int) -> str:
    return " ".join(words(seed, WORDS_PER_PROMPT))


def score(said: str) -> float:
    """The reward: the share of vowels."""
    return sum(letter in "aeiou" for letter in said) / max(1, len(said))


def answer(seed: int) -> str:
    """What the tool says."""
    return " ".join(words(seed, 4))


def latencies(mean: float, sigma: float, seed: int) -> Iterator[float]:
    """Log-normal seconds with this mean, one sequence per run: the n-th call takes the same time on both sides."""
    rng = random.Random(f"latency {seed}")
    while True:
        yield rng.lognormvariate(-(sigma**2) / 2, sigma) * mean


SHAPE = TinyModelConfig(layers=4, hidden=128, heads=4, kv_heads=2, intermediate=384, vocabulary=512)


def write_model(folder: Path) -> int:
    """A Qwen3 of that shape with random weights and a tokenizer fitted to the prompts; returns how many parameters."""
    tools = f"Tools:\n{json.dumps(schema_object(TOOL))}\n{HOW_TO_CALL}"
    texts = [text for seed in range(2000) for text in (question(seed), SYSTEM, tools)]
    tokenizer = fit_tokenizer(texts, vocabulary=SHAPE.vocabulary)
    model = build_tiny(SHAPE, vocabulary_size=tokenizer.vocabulary_size, seed=0)
    export(model, tokenizer, folder)
    return sum(parameter.numel() for parameter in model.parameters())


class LookUps:
    """Our side's environment, as a user writes one."""

    def __init__(self, *, turns: int = 1, mean: float = 0.0, sigma: float = 1.0, seed: int = 0) -> None:
        self._turns = turns
        self._mean = mean
        self._sigma = sigma
        self._seed = seed
        self._said: list[str] = []

    async def reset(self, task: Task) -> Observation:
        self._task = task
        messages = (Message(role="system", content=SYSTEM), Message(role="user", content=question(task.seed)))
        return Observation(messages=messages, tools=(TOOL,) if self._turns > 1 else ())

    async def step(self, action: Message) -> Observation:
        self._said.append(action.text)
        if len(self._said) == self._turns:
            return Observation(done=True)
        if self._mean > 0:
            await asyncio.sleep(next(_stream(self._mean, self._sigma, self._seed)))
        content = answer(self._task.seed + len(self._said))
        return Observation(messages=(Message(role="tool", name=TOOL.name, content=content),))

    async def verify(self, ending: Ending) -> Outcome:
        return Valid(reward=score("".join(self._said)), ending=ending)

    async def close(self) -> None:
        pass


_streams: dict[tuple[float, float, int], Iterator[float]] = {}


def _stream(mean: float, sigma: float, seed: int) -> Iterator[float]:
    """Shared by all episodes of a run; a run loads this file anew."""
    return _streams.setdefault((mean, sigma, seed), latencies(mean, sigma, seed))
