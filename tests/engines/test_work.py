"""What an engine reports of its work, by hand, and that costs fitted to it predict what its passes take."""

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from springtide.core.member import Member, Purpose
from springtide.core.sampling import SampleRequest, SamplingParams
from springtide.engines.config import TorchEngineConfig
from springtide.engines.torch_engine import TorchEngine
from springtide.ports.engine import EngineStats
from springtide.scheduling.cost_fold import SERVED, CostFold, served
from springtide.scheduling.costs import ServiceCosts

NO_COSTS = dict.fromkeys(ServiceCosts.model_fields, 0.0)


def tiny(**config):
    torch.manual_seed(0)
    shape = Qwen3Config(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=16,
        max_position_embeddings=512,
    )
    return TorchEngine(
        Qwen3ForCausalLM(shape), TorchEngineConfig(**({"capacity_tokens": 4096, "max_batch": 8} | config)), 0
    )


def ask(engine, group, tokens, output, *, turn=0):
    member = Member(Purpose.TRAIN, group, 0)
    text = tuple((group + place) % 32 for place in range(tokens))
    engine.submit([SampleRequest(member=member, turn=turn, tokens=text, params=SamplingParams(max_tokens=output))])
    return member


def since(engine, before):
    done = engine.stats().since(before)
    return {name: getattr(done, name) for name in ("visits", "starts", "joins", "turns", "attended", "steps", "read")}


def test_a_turn_alone():
    engine = tiny()
    ask(engine, 0, 10, 5)
    engine.step(max_decode_steps=3)
    # One pass for the prompt, which samples the first token after 10, then two steps after 11 and 12.
    assert since(engine, EngineStats()) == {
        "visits": 1,
        "starts": 1,
        "joins": 0,
        "turns": 1,
        "attended": 10 * 4.5,
        "steps": 3,
        "read": 10 + 11 + 12,
    }
    before = engine.stats()
    engine.step(max_decode_steps=100)
    assert since(engine, before) == {
        "visits": 1,
        "starts": 0,
        "joins": 0,
        "turns": 0,
        "attended": 0,
        "steps": 2,
        "read": 13 + 14,
    }
    before = engine.stats()
    engine.step(max_decode_steps=100)
    assert engine.stats() == before, "a visit without work is none"


def test_turns_that_join_others():
    engine = tiny(prefill_chunk=16)
    ask(engine, 0, 10, 50)
    engine.step(max_decode_steps=1)
    before = engine.stats()
    ask(engine, 1, 20, 50)
    ask(engine, 2, 6, 50)
    engine.step(max_decode_steps=3)
    # Chunks of 16, of 4 and 6 after 16 and 0, beside one that decodes; then all three decode.
    done = since(engine, before)
    assert (done["joins"], done["starts"], done["turns"], done["steps"]) == (2, 0, 3, 3)
    assert done["attended"] == 16 * 7.5 + 4 * (16 + 1.5) + 6 * 2.5
    assert done["read"] == 11 + (12 + 20 + 6) + (13 + 21 + 7)
    assert engine.stats().since(before).decoded == 1 + 3 + 3


def test_reloads_are_timed_and_counted_by_tokens():
    engine = tiny(host_capacity_tokens=1000)
    member = ask(engine, 0, 40, 3)
    engine.step(max_decode_steps=10)
    engine.demote(member, "warm")
    engine.prefetch(member)
    stats = engine.stats()
    assert (stats.reloads, stats.reloaded) == (1, 42)
    assert stats.reload_seconds == stats.reload_wait > 0


TRUE = ServiceCosts(
    **(
        NO_COSTS
        | {"prefill_token": 0.003, "prefill_attention": 1e-5, "decode_base": 0.02}
        | {"decode_sequence": 0.004, "decode_context": 5e-5, "visit": 0.01, "join": 0.015, "prefill_base": 0.008}
    )
)


class Priced:
    """The engine's own passes, of which each takes what `TRUE` says of its rows: nothing of it comes from counters."""

    def __init__(self, engine):
        self.engine = engine
        self.time = 0.0
        network = engine._network
        batch, logits = network.batch, network.logits

        def opened(storage, rows, *, steps=1):
            self.rows = [(row.start, row.new, row.start + row.new) for row in rows]
            return batch(storage, rows, steps=steps)

        def computed(tokens, made, *, last_only):
            self.take()
            return logits(tokens, made, last_only=last_only)

        network.batch, network.logits = opened, computed

    def take(self):
        new = [(start, count) for start, count, _ in self.rows if count > 1]
        if new:
            self.time += TRUE.join if len(new) < len(self.rows) else TRUE.prefill_base
        for start, count in new:
            self.time += TRUE.prefill(count, start) - TRUE.prefill_base
        self.time += TRUE.decode_step(len(self.rows), sum(length for _, _, length in self.rows))
        self.rows = [(length, 1, length + 1) for _, _, length in self.rows]

    def visit(self, steps):
        before, stats = self.time, self.engine.stats()
        if self.engine.has_work():
            self.time += TRUE.visit
        ended = self.engine.step(max_decode_steps=steps)
        return ended, self.engine.stats().since(stats), self.time - before


@pytest.mark.parametrize("factor", [1 / 3, 3.0])
def test_fitted_to_the_real_engine_costs_predict_what_a_visit_takes(factor):
    """A prior that is three times off, and some hundred visits in which turns of all lengths come and go."""
    engine = tiny(max_batch=6)
    priced = Priced(engine)
    prior = ServiceCosts(**{name: factor * value for name, value in TRUE.model_dump().items()})
    fold, errors = CostFold(prior), []
    number, generator = 0, torch.Generator().manual_seed(1)

    def drawn(low, high):
        return int(torch.randint(low, high, (), generator=generator))

    while len(errors) < 300:
        while engine.stats().running + len(engine._turns.waiting) < drawn(1, 7):
            ask(engine, number, drawn(2, 200), drawn(2, 60))
            number += 1
        ended, done, seconds = priced.visit(drawn(1, 9))
        for turn in ended:
            engine.release(turn.member)
        if done.visits:
            costs = fold.now()
            amounts = zip(SERVED, served(done), strict=True)
            errors.append(abs(sum(getattr(costs, name) * amount for name, amount in amounts) / seconds - 1))
            fold.visited(done, seconds)
    assert errors[0] == pytest.approx(abs(factor - 1), rel=0.01)
    assert sum(errors[20:]) / len(errors[20:]) < 0.05
    assert max(errors[150:]) < 0.1
