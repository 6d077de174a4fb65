import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from springtide.engines.calibration import Calibration
from springtide.engines.config import TorchEngineConfig
from springtide.engines.torch_engine import TorchEngine
from springtide.ports.engine import EngineCapabilities
from springtide.scheduling.costs import ServiceCosts

TRUE = ServiceCosts(
    prefill_base=0.01,
    prefill_token=0.002,
    prefill_attention=1e-6,
    decode_base=0.005,
    decode_sequence=0.001,
    decode_context=2e-6,
    visit=0.003,
    join=0.007,
    turn=0.0005,
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
    """An engine whose time is exactly what `TRUE` says; a first token comes with the prefill, as a decode step."""

    capabilities = EngineCapabilities(owns_residency=True, capacity_tokens=100_000, max_batch=64, max_context=4096)

    def __init__(self, wrong=0.0):
        self.time = 0.0
        self.wrong = wrong
        self.queue = []
        self.running = {}
        self.sessions = {}

    def submit(self, requests):
        self.queue += requests

    def has_work(self):
        return bool(self.queue or self.running)

    def step(self, *, max_decode_steps):
        self.time += TRUE.visit
        if self.queue:
            self.time += TRUE.join if self.running else TRUE.prefill_base
        for request in self.queue:
            held = self.sessions.get(request.member, 0)
            self.time += TRUE.turn + TRUE.prefill(len(request.tokens) - held, held) - TRUE.prefill_base
            self.running[request.member] = request.params.max_tokens
            self.sessions[request.member] = len(request.tokens)
        self.queue = []
        for _ in range(max_decode_steps):
            self.time += TRUE.decode_step(len(self.running), sum(self.sessions[m] for m in self.running)) - self.wrong
            self.running = {member: left - 1 for member, left in self.running.items() if left > 1}
            if not self.running:
                break
        return []

    def cancel(self, member):
        del self.running[member]

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


@pytest.mark.parametrize(("context", "capacity"), [(256, 4096), (64, 4096), (64, 64)])
def test_an_engine_is_left_as_it_was_found_but_for_its_counters(context, capacity):
    torch.manual_seed(0)
    shape = Qwen3Config(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=16,
        max_position_embeddings=context,
    )
    engine = TorchEngine(Qwen3ForCausalLM(shape), TorchEngineConfig(capacity_tokens=capacity, max_batch=8), 0)
    found = Calibration(engine).costs()
    assert found.decode_base > 0
    assert all(getattr(found, name) >= 0 for name in ServiceCosts.model_fields)
    stats = engine.stats()
    assert (stats.hot_tokens, stats.warm_tokens, stats.hot_sessions, stats.running) == (0, 0, 0, 0)
    assert not engine.has_work()
