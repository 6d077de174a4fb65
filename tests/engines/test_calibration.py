import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from springtide.core.sampling import Sampled, SampleStop
from springtide.engines.calibration import Calibration
from springtide.engines.config import TorchEngineConfig
from springtide.engines.torch_engine import TorchEngine
from springtide.ports.engine import EngineCapabilities, Finished
from springtide.scheduling.costs import ServiceCosts

TRUE = ServiceCosts(
    prefill_base=0.01,
    prefill_token=0.002,
    prefill_attention=1e-6,
    decode_base=0.005,
    decode_sequence=0.001,
    decode_context=2e-6,
    reload_base=0.004,
    reload_token=1e-5,
    reference_token=0,
    forward_token=0,
    backward_token=0,
    optimizer=0,
    swap=0,
    publish=0,
    role_switch=0,
)


class Clockwork:
    """An engine whose time is exactly what `TRUE` says; a first token comes with the prefill."""

    capabilities = EngineCapabilities(owns_residency=True, capacity_tokens=100_000, max_batch=64, max_context=4096)

    def __init__(self, wrong=0.0):
        self.time = 0.0
        self.wrong = wrong
        self.queue = []
        self.sessions = {}

    def submit(self, requests):
        self.queue += requests

    def has_work(self):
        return bool(self.queue)

    def step(self, *, max_decode_steps):
        requests, self.queue = self.queue, []
        tokens = len(requests[0].tokens)
        self.time += TRUE.prefill_base + len(requests) * (TRUE.prefill(tokens, 0) - TRUE.prefill_base)
        for _ in range(requests[0].params.max_tokens - 1):
            self.time += TRUE.decode_step(len(requests), len(requests) * tokens) - self.wrong
        self.sessions |= {request.member: tokens for request in requests}
        sampled = Sampled(tokens=(0,), logprobs=(0.0,), versions=(0,), stop=SampleStop.LENGTH)
        return [Finished(member=request.member, turn=0, sampled=sampled) for request in requests]

    def demote(self, member, to):
        assert to == "warm"

    def prefetch(self, member):
        self.time += TRUE.reload(self.sessions[member])

    def release(self, member):
        del self.sessions[member]


def test_the_costs_of_an_engine_are_found_again():
    engine = Clockwork()
    found = Calibration(engine, lambda: engine.time).costs()
    for name in ServiceCosts.model_fields:
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=1e-6, abs=1e-12), name
    assert engine.sessions == {}


def test_noise_that_would_make_a_cost_negative_makes_it_nothing():
    engine = Clockwork(wrong=0.0055)
    found = Calibration(engine, lambda: engine.time).costs()
    assert found.decode_base > 0
    assert all(getattr(found, name) >= 0 for name in ServiceCosts.model_fields)


def test_an_engine_is_left_as_it_was_found_but_for_its_counters():
    torch.manual_seed(0)
    shape = Qwen3Config(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=16,
        max_position_embeddings=256,
    )
    engine = TorchEngine(Qwen3ForCausalLM(shape), TorchEngineConfig(capacity_tokens=4096, max_batch=8), 0)
    found = Calibration(engine).costs()
    assert found.decode_base > 0
    assert found.prefill(100, 0) > 0
    stats = engine.stats()
    assert (stats.hot_tokens, stats.warm_tokens, stats.hot_sessions, stats.running) == (0, 0, 0, 0)
    assert not engine.has_work()
