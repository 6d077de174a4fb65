import math

import numpy as np
import pytest
import torch

from springtide.core.errors import UsageError
from springtide.core.trajectory import Sample
from springtide.policy.digest import digest_tensors, named_weights
from springtide.training import chunks, sft
from springtide.training.batch import row_from_sample
from springtide.training.config import OptimizerConfig, WarmStartConfig
from springtide.training.sft import supervised
from training.builders import VOCABULARY, tiny_model


def echo(generator):
    """A prompt of random tokens, then the same tokens again to imitate, then something to be ignored."""
    prompt = [int(token) for token in generator.integers(3, VOCABULARY, int(generator.integers(2, 5)))]
    tokens = (1, *prompt, 2, *prompt, 0, 0)
    mask = (False,) * (len(prompt) + 2) + (True,) * len(prompt) + (False, False)
    return Sample(tokens=tokens, mask=mask, logprobs=(0.0,) * len(tokens), versions=(-1,) * len(tokens))


def samples(count, seed=0):
    generator = np.random.default_rng(seed)
    return [echo(generator) for _ in range(count)]


def settings(steps, batch_size=16, compute="auto"):
    return WarmStartConfig(
        steps=steps,
        batch_size=batch_size,
        optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=2),
        compute=compute,
    )


def train(model, data, *, steps, seed=0, budget=256, batch_size=16, compute="float32"):
    seen = []
    supervised(
        model,
        [row_from_sample(sample) for sample in data],
        config=settings(steps, batch_size, compute),
        seed=seed,
        tokens_per_micro_batch=budget,
        on_step=lambda step, metrics: seen.append((step, metrics)),
    )
    return seen


def test_loss_falls_and_every_step_is_reported():
    seen = train(tiny_model(), samples(64), steps=60)
    assert [step for step, _ in seen] == list(range(1, 61))
    first, last = seen[0][1], seen[-1][1]
    assert first["warm_start/loss"] == pytest.approx(np.log(VOCABULARY), abs=0.3)
    assert last["warm_start/loss"] < 0.7 * first["warm_start/loss"]
    assert last["warm_start/accuracy"] > 0.2 > first["warm_start/accuracy"]


def test_the_first_loss_is_the_mean_cross_entropy_of_masked_tokens():
    data = samples(16)
    model = tiny_model()
    losses = []
    for sample in data:
        tokens = torch.tensor(sample.tokens)
        with torch.no_grad():
            logits = model(input_ids=tokens[None]).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits, tokens[1:], reduction="none")[list(sample.mask[1:])])
    seen = train(tiny_model(), data, steps=1)
    assert seen[0][1]["warm_start/loss"] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-5)
    assert seen[0][1]["warm_start/tokens"] == sum(sum(sample.mask) for sample in data)


def test_the_gradient_does_not_depend_on_the_micro_batch_split():
    norms = [
        [metrics["warm_start/grad_norm"] for _, metrics in train(tiny_model(), samples(16), steps=3, budget=budget)]
        for budget in (64, 4096)
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)


def test_the_loss_does_not_depend_on_how_many_rows_of_logits_are_read_at_once(monkeypatch):
    whole = train(tiny_model(), samples(16), steps=3)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4 * VOCABULARY * 5)
    for (_, found), (_, expected) in zip(train(tiny_model(), samples(16), steps=3), whole, strict=True):
        assert found == pytest.approx(expected, rel=1e-4)


def test_a_step_without_a_finite_gradient_is_skipped_and_counted(monkeypatch):
    healthy, calls = sft.apply_gradients, []

    def break_second(optimizer, **options):
        calls.append(options)
        if len(calls) == 2:
            optimizer.param_groups[0]["params"][0].grad.fill_(math.inf)
        return healthy(optimizer, **options)

    monkeypatch.setattr(sft, "apply_gradients", break_second)
    seen = [metrics for _, metrics in train(tiny_model(), samples(16), steps=4)]
    assert [metrics["warm_start/skipped_updates"] for metrics in seen] == [0.0, 1.0, 1.0, 1.0]
    assert ["warm_start/grad_norm" in metrics for metrics in seen] == [True, False, True, True]


def test_a_warm_start_that_applied_no_step_is_one_sentence():
    model = tiny_model()
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)
    with pytest.raises(UsageError, match=r"^warm_start.steps 3: no step had a finite gradient"):
        train(model, samples(16), steps=3)


def test_bfloat16_learns_the_same():
    data = samples(64)
    single = train(tiny_model(), data, steps=20)
    half = train(tiny_model(), data, steps=20, compute="bfloat16")
    assert half[-1][1]["warm_start/loss"] == pytest.approx(single[-1][1]["warm_start/loss"], rel=0.05)


def test_equal_arguments_give_equal_weights():
    models = [tiny_model() for _ in range(3)]
    for model, seed in zip(models, (7, 7, 8), strict=True):
        train(model, samples(40), steps=4, seed=seed)
    digests = [digest_tensors(named_weights(model)) for model in models]
    assert digests[0] == digests[1] != digests[2]


def test_an_epoch_sees_every_sample_once():
    data = samples(24)
    seen = train(tiny_model(), data, steps=6, batch_size=4)
    assert sum(metrics["warm_start/tokens"] for _, metrics in seen) == sum(sum(sample.mask) for sample in data)


def test_nothing_to_imitate_is_an_error():
    silent = Sample(tokens=(1, 2), mask=(False, False), logprobs=(0.0, 0.0), versions=(-1, -1))
    with pytest.raises(ValueError, match="at least one row"):
        train(tiny_model(), [silent], steps=1)
