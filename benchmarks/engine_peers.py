"""The engines that are compared, each set up as well as we know how. All return seconds of the clock they are given."""

import json
import multiprocessing
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import ContinuousBatchingConfig, DynamicCache, GenerationConfig
from transformers.generation.continuous_batching import PagedAttentionCache

from engine_workloads import BATCH, TURN_NEW, Batch, Conversation, build, export, uniform
from springtide.core.member import Member, Purpose
from springtide.core.sampling import SampleRequest, SamplingParams
from springtide.engines.config import TorchEngineConfig
from springtide.engines.torch_engine import TorchEngine

Clock = Callable[[], float]

CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
"""`cpu` is the time of the process, for a machine that others use too; with one thread it stands for the wall's."""

OURS = ("OMP_", "GOMP_", "ONEDNN_")
"""Beginnings of what springtide may have set in the environment."""

Turns = tuple[float, float | None]
"""Seconds, and the share of re-presented tokens that came from a cache (None: not observable)."""


class Peer(Protocol):
    name: str
    notes: dict[str, Any]
    """For the result file: how it was tuned, which version it is."""

    def complete(self, batch: Batch) -> float: ...

    def converse(self, talk: Conversation) -> Turns: ...

    def close(self) -> None: ...


class Springtide:
    """The engine as a run uses it, as wide as the peers' batch; or without its C kernel."""

    def __init__(self, shape: str, clock: Clock, *, native: bool = True) -> None:
        self.name = "springtide" if native else "springtide, no C kernel"
        self.notes: dict[str, Any] = {}
        self._clock = clock
        self._config = TorchEngineConfig(max_batch=BATCH, native_kernels=native)
        self._engine = TorchEngine(build(shape), self._config, 0)
        self._groups = count()

    def complete(self, batch: Batch) -> float:
        started = self._clock()
        requests = [
            self._request(next(self._groups), 0, prompt, new)
            for prompt, new in zip(batch.prompts, batch.new, strict=True)
        ]
        results = self._run(requests, last=True)
        seconds = self._clock() - started
        assert [len(results[request.member]) for request in requests] == batch.new
        return seconds

    def converse(self, talk: Conversation) -> Turns:
        started = self._clock()
        before = self._engine.stats()
        groups = [next(self._groups) for _ in talk.prompts[0]]
        paths: list[list[int]] = [[] for _ in groups]
        for turn, prompts in enumerate(talk.prompts):
            paths = [path + prompt for path, prompt in zip(paths, prompts, strict=True)]
            requests = [self._request(g, turn, path, TURN_NEW) for g, path in zip(groups, paths, strict=True)]
            results = self._run(requests, last=turn + 1 == len(talk.prompts))
            paths = [path + list(results[r.member]) for r, path in zip(requests, paths, strict=True)]
        seconds = self._clock() - started
        after = self._engine.stats()
        return seconds, (after.reused - before.reused) / talk.represented

    def close(self) -> None: ...

    def _request(self, group: int, turn: int, tokens: list[int], new: int) -> SampleRequest:
        params = SamplingParams(max_tokens=new)
        return SampleRequest(member=Member(Purpose.TRAIN, group, 0), turn=turn, tokens=tuple(tokens), params=params)

    def _run(self, requests: list[SampleRequest], *, last: bool) -> dict[Member, tuple[int, ...]]:
        """Play one turn of each; an episode whose last turn is over is released."""
        self._engine.submit(requests)
        results: dict[Member, tuple[int, ...]] = {}
        while self._engine.has_work():
            for each in self._engine.step(max_decode_steps=self._config.decode_steps):
                results[each.member] = each.sampled.tokens
                if last:
                    self._engine.release(each.member)
        return results


class Generate:
    """`generate` in batches of 64, in the order of the requests; between turns it keeps its cache.

    Batches run with the cache that was faster when it was made, dynamic or static.
    """

    name = "generate"

    def __init__(self, shape: str, clock: Clock) -> None:
        self._clock = clock
        self._model = build(shape)
        self._cache: dict[str, Any] = {}
        batch = uniform()
        tried = {}
        for kind in ("dynamic", "static"):
            self._cache = {} if kind == "dynamic" else {"cache_implementation": "static", "disable_compile": True}
            tried[kind] = min(self.complete(batch) for _ in range(2))
        if tried["dynamic"] < tried["static"]:
            self._cache = {}
        self.notes: dict[str, Any] = {"seconds_by_cache": tried}

    def complete(self, batch: Batch) -> float:
        started = self._clock()
        for first in range(0, len(batch.new), BATCH):
            prompts = torch.tensor(batch.prompts[first : first + BATCH])
            self._generate(prompts, max(batch.new[first : first + BATCH]), **self._cache)
        return self._clock() - started

    def converse(self, talk: Conversation) -> Turns:
        started = self._clock()
        cache = DynamicCache(config=self._model.config)
        paths = torch.empty(len(talk.prompts[0]), 0, dtype=torch.long)
        for prompts in talk.prompts:
            paths = torch.cat([paths, torch.tensor(prompts)], dim=1)
            paths = self._generate(paths, TURN_NEW, past_key_values=cache)
        # It recomputes the newest token of each turn, as all do, and nothing else.
        return self._clock() - started, None

    def close(self) -> None: ...

    def _generate(self, prompts: torch.Tensor, new: int, **settings: Any) -> torch.Tensor:
        result: torch.Tensor = self._model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=new,
            do_sample=True,
            top_k=0,
            **settings,
        )
        return result


class ContinuousBatching:
    """The continuous batching of transformers, prompts re-presented whole at every turn, prefix sharing allowed.

    Without a paged attention kernel it masks every sequence of a batch against every other, so few at a time are
    fastest: how many is tried when it is made. Its thread lives while it is measured, with a cache that is empty at
    first, and not beside the others.
    """

    name = "transformers_cb"

    def __init__(self, shape: str, clock: Clock, widths: Sequence[int]) -> None:
        self._clock = clock
        self._model = build(shape)
        self._matched = 0
        self._observe()
        self._width = 0
        self._manager: Any = None
        batch = uniform()
        tried = {}
        for self._width in widths:
            tried[self._width] = self.complete(batch)
        self._width = min(tried, key=lambda width: tried[width])
        self.notes: dict[str, Any] = {"seconds_by_width": tried}

    def complete(self, batch: Batch) -> float:
        with self._started():
            started = self._clock()
            results = self._run(batch.prompts, batch.new)
            seconds = self._clock() - started
        assert [len(each) for each in results] == batch.new
        return seconds

    def converse(self, talk: Conversation) -> Turns:
        with self._started():
            started, before = self._clock(), self._matched
            paths: list[list[int]] = [[] for _ in talk.prompts[0]]
            for prompts in talk.prompts:
                paths = [path + prompt for path, prompt in zip(paths, prompts, strict=True)]
                results = self._run(paths, [TURN_NEW] * len(paths))
                paths = [path + result for path, result in zip(paths, results, strict=True)]
            return self._clock() - started, (self._matched - before) / talk.represented

    def close(self) -> None: ...

    @contextmanager
    def _started(self) -> Iterator[None]:
        sampling = GenerationConfig(do_sample=True, top_k=0, max_new_tokens=TURN_NEW, eos_token_id=-1, pad_token_id=0)
        settings = ContinuousBatchingConfig(
            page_size=64,
            num_blocks=2048,
            max_batch_tokens=512,
            max_requests_per_batch=self._width,
            allow_block_sharing=True,
        )
        self._manager = self._model.init_continuous_batching(
            generation_config=sampling, continuous_batching_config=settings
        )
        self._manager.start()
        try:
            yield
        finally:
            self._manager.stop(block=True)

    def _run(self, prompts: list[list[int]], new: list[int]) -> list[list[int]]:
        names = [
            self._manager.add_request(prompt, max_new_tokens=length)
            for prompt, length in zip(prompts, new, strict=True)
        ]
        results: dict[str, list[int]] = {}
        while len(results) < len(names):
            result = self._manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                assert result.error is None, result.error
                results[result.request_id] = list(result.generated_tokens)
        return [results[name] for name in names]

    def _observe(self) -> None:
        match = PagedAttentionCache.search_prefix_match

        def counted(cache: Any, request_id: str, prompt_ids: list[int]) -> int:
            found: int = match(cache, request_id, prompt_ids)
            self._matched += found
            return found

        PagedAttentionCache.search_prefix_match = counted


class Apart:
    """Continuous batching in a process of its own, which sleeps while others are measured.

    It computes on a thread of its own. In this process that thread would keep a second team of OpenMP
    threads, and the runtime then lets all teams sleep between operations instead of spin: everybody else gets slower.
    """

    def __init__(self, shape: str, clock: str, *, threads: int, widths: Sequence[int]) -> None:
        spawn = multiprocessing.get_context("spawn")
        arguments = (shape, clock, threads, widths)
        self._pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=_become, initargs=arguments)
        self.name, self.notes = self._pool.submit(_introduce).result()

    def complete(self, batch: Batch) -> float:
        return self._pool.submit(_complete, batch).result()

    def converse(self, talk: Conversation) -> Turns:
        return self._pool.submit(_converse, talk).result()

    def close(self) -> None:
        self._pool.shutdown()


_here: list[Peer] = []
"""In the process of a peer that is apart: that peer."""


def _become(shape: str, clock: str, threads: int, widths: Sequence[int]) -> None:
    torch.set_num_threads(threads)
    _here.append(ContinuousBatching(shape, CLOCKS[clock], widths))


def _introduce() -> tuple[str, dict[str, Any]]:
    return _here[0].name, _here[0].notes


def _complete(batch: Batch) -> float:
    return _here[0].complete(batch)


def _converse(talk: Conversation) -> Turns:
    return _here[0].converse(talk)


class Vllm:
    """vLLM on the CPU in an environment of its own: a child process that runs the same workloads on request.

    With Intel's OpenMP, as its documentation recommends, if that is installed beside it, and nothing of what springtide
    sets for its own process.
    """

    def __init__(self, shape: str, clock: str, python: Path, *, eager: bool, threads: int) -> None:
        self.name = "vllm_eager" if eager else "vllm"
        self._folder = tempfile.TemporaryDirectory()
        export(shape, Path(self._folder.name))
        script = Path(__file__).with_name("engine_vllm.py")
        command = [str(python), str(script), self._folder.name, str(threads), clock, "eager" if eager else "compiled"]
        self._log = (Path(self._folder.name) / "log").open("w")
        environment = self._environment(python)
        started = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        version = self._answer()
        self.notes: dict[str, Any] = {
            "version": version[0],
            "startup_seconds": time.perf_counter() - started,
            "intel_openmp": "LD_PRELOAD" in environment,
        }

    def complete(self, batch: Batch) -> float:
        return float(self._ask({"prompts": [batch.prompts], "new": batch.new})[0])

    def converse(self, talk: Conversation) -> Turns:
        seconds, hits = self._ask({"prompts": talk.prompts, "new": [TURN_NEW] * len(talk.prompts[0])})
        return seconds, hits / talk.represented

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._log.close()
        self._folder.cleanup()

    def _environment(self, python: Path) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        intel = python.parent.parent / "lib" / "libiomp5.so"
        return environment | ({"LD_PRELOAD": str(intel)} if intel.exists() else {})

    def _ask(self, request: dict[str, Any]) -> list[Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                answer: list[Any] = json.loads(line.removeprefix("ANSWER "))
                return answer
        log = (Path(self._folder.name) / "log").read_text()
        raise RuntimeError(f"vLLM ended: {log[-600:]}")
