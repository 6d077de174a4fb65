"""TRL's side: GRPOTrainer as it is, and a small subclass-free variant whose tool calls run at the same time.

What is tuned: float32 without autocast and without gradient checkpointing (both on by default), one forward and
backward pass per update, the fused optimizer, no logging, saving, evaluation or progress bar, generation in one batch.
"""

import asyncio
import itertools
import tempfile
import threading
import time
from concurrent.futures import Future
from typing import Any

import torch
from datasets import Dataset, disable_progress_bars
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import grpo_trainer

from trl_support.task import SYSTEM, Timing, Tuning, Workload, answer, latencies, question, score


def run(work: Workload, tuning: Tuning, model: str, steps: int) -> Timing:
    """One training of `steps` steps, timed from inside."""
    disable_progress_bars()
    logging.set_verbosity_error()
    torch.set_num_threads(tuning.threads)
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = AutoTokenizer.from_pretrained(model)
        tools = Tools(work, tuning, tokenizer)
        times = Times()
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
            args=config(work, tuning, scratch, steps),
            reward_funcs=reward,
            train_dataset=dataset(work, steps),
            processing_class=tokenizer,
            callbacks=[times],
            tools=[tools.look_up] if work.turns > 1 else None,
        )
        times.trainer = trainer
        try:
            trainer.train()
        finally:
            tools.close()
    tokens = [round(length * work.episodes) for length in times.lengths for _ in range(tuning.ahead)]
    return Timing(times=times.ends, tokens=tokens[: len(times.ends)], notes={"calls": float(tools.calls)})


def config(work: Workload, tuning: Tuning, scratch: str, steps: int) -> GRPOConfig:
    turn_room = 64
    return GRPOConfig(
        output_dir=scratch,
        max_steps=steps,
        per_device_train_batch_size=work.episodes // tuning.micro_batches,
        gradient_accumulation_steps=tuning.micro_batches,
        steps_per_generation=tuning.ahead * tuning.micro_batches,
        num_generations=work.size,
        max_completion_length=work.tokens if work.turns == 1 else work.turns * (work.tokens + turn_room),
        generation_kwargs=None if work.turns == 1 else {"max_new_tokens": work.tokens},
        max_tool_calling_iterations=work.turns - 1 or None,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        beta=0.0,
        loss_type="dapo",
        scale_rewards="group",
        learning_rate=work.learning_rate,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        adam_beta2=0.95,
        weight_decay=0.0,
        max_grad_norm=1.0,
        bf16=False,
        gradient_checkpointing=False,
        disable_dropout=True,
        cache_implementation=tuning.cache or None,
        use_transformers_continuous_batching=tuning.continuous_batching,
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        use_cpu=True,
        seed=work.seed,
    )


def dataset(work: Workload, steps: int) -> Dataset:
    prompts = [
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question(index)}]
        for index in range(work.groups * steps)
    ]
    return Dataset.from_dict({"prompt": prompts})


def reward(completions: list[list[dict[str, Any]]], **_: object) -> list[float]:
    return [
        score("".join(str(message["content"]) for message in messages if message["role"] == "assistant"))
        for messages in completions
    ]


class Times(TrainerCallback):
    """When each optimizer step had been applied."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.trainer: Any = None
        self.lengths: list[float] = []

    def on_step_end(self, *_: object, **__: object) -> None:
        self.ends.append(time.perf_counter())
        # One entry per generation: the mean number of sampled tokens. TRL clears them when it logs, at the end.
        self.lengths = list(self.trainer._metrics["train"]["completions/mean_length"])


class Tools:
    """The tool, and how a turn becomes a call of it.

    Stock: the call sleeps when TRL makes it, which is one sample after another. Gathered: the call begins to sleep on
    an event loop when TRL has read the turn, before it makes the first call, so that the calls of a round overlap and a
    round takes as long as its slowest.
    """

    def __init__(self, work: Workload, tuning: Tuning, tokenizer: Any) -> None:
        self._turns = work.turns
        self._together = work.episodes * tuning.ahead
        self._tokenizer = tokenizer
        self._latencies = latencies(work.mean, work.sigma, work.seed)
        self._loop = asyncio.new_event_loop() if tuning.tools == "gathered" else None
        self._begun: dict[str, Future[None]] = {}
        self._numbers = itertools.count()
        self.calls = 0
        if self._loop is not None:
            threading.Thread(target=self._loop.run_forever, daemon=True).start()
        if work.turns > 1:
            tokenizer.response_template = {}  # TRL asks for one; `read` stands in for it
            grpo_trainer.parse_response = self.read

    # No return type: it would become part of the prompt.
    def look_up(self, word: str):
        """Look up a word.

        Args:
            word: The word.
        """
        self.calls += 1
        begun = self._begun.pop(word, None)
        if begun is not None:
            begun.result()
        else:
            time.sleep(next(self._latencies))
        return answer(int(word))

    def read(self, _: Any, ids: list[int], **__: Any) -> dict[str, Any]:
        """In the place of TRL's `parse_response`: any turn but the last is a call."""
        message: dict[str, Any] = {"role": "assistant", "content": self._tokenizer.decode(ids)}
        number = next(self._numbers)
        # Nobody leaves early, so TRL reads the turns of all episodes round by round.
        if number // self._together % self._turns < self._turns - 1:
            word = str(number)
            message["tool_calls"] = [{"type": "function", "function": {"name": "look_up", "arguments": {"word": word}}}]
            if self._loop is not None:
                sleep = asyncio.sleep(next(self._latencies))
                self._begun[word] = asyncio.run_coroutine_threadsafe(sleep, self._loop)
        return message

    def close(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
