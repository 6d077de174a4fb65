import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from springtide.training.config import OptimizerConfig
from springtide.training.optimizer import apply_gradients, learning_rate, make_optimizer
from training.builders import make_trainer, random_groups, training_config

schedules = st.sampled_from(["constant", "linear", "cosine"])


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 0.8, 0.6, 0.4, 0.2]),
        ("cosine", [0.5, 1.0, 0.882843, 0.6, 0.317157, 0.2]),
    ],
)
def test_schedules_by_hand(schedule, expected):
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=2, schedule=schedule, final_fraction=0.2)
    rates = [learning_rate(config, step=step, total_steps=6) for step in range(1, 7)]
    assert rates == pytest.approx(expected, abs=1e-6)


@given(schedules, st.integers(0, 20), st.integers(0, 50), st.integers(1, 60), st.floats(0, 1))
def test_the_rate_stays_between_zero_and_its_peak(schedule, warmup, total, step, final):
    config = OptimizerConfig(learning_rate=0.3, warmup_steps=warmup, schedule=schedule, final_fraction=final)
    assert 0.0 <= learning_rate(config, step=step, total_steps=total) <= 0.3 + 1e-12


def test_each_step_takes_its_own_rate():
    settings = {"warmup_steps": 4, "max_grad_norm": 1e9}
    trainer = make_trainer(training_config(learning_rate=0.1, optimizer=settings))
    moved = []
    for step in (1, 2):
        before = trainer.model.lm_head.weight.detach().clone()
        report = trainer.step(step=step, groups=random_groups(0))
        assert report.metrics["train/learning_rate"] == pytest.approx(0.1 * step / 4)
        moved.append((trainer.model.lm_head.weight - before).abs().max().item())
    assert moved[0] == pytest.approx(0.1 / 4, rel=1e-3), "the first step of Adam is the learning rate itself"


def linear(value):
    layer = torch.nn.Linear(2, 2)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(value)
            parameter.grad = torch.full_like(parameter, 3.0)
    return layer


def test_the_norm_is_reported_before_clipping_and_the_gradient_is_clipped():
    layer = linear(1.0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    report = apply_gradients(optimizer, rate=0.5, max_grad_norm=1.0)
    norm = 3.0 * 6**0.5
    assert report.norm == pytest.approx(norm)
    assert layer.weight[0, 0].item() == pytest.approx(1.0 - 0.5 * 3.0 / norm, abs=1e-5)
    assert layer.weight.grad is None


def test_only_matrices_decay():
    layer = linear(1.0)
    optimizer = make_optimizer(layer, OptimizerConfig(learning_rate=0.1, weight_decay=0.5))
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    apply_gradients(optimizer, rate=0.1, max_grad_norm=1.0)
    assert layer.weight[0, 0].item() == pytest.approx(1.0 - 0.1 * 0.5)
    assert layer.bias[0].item() == 1.0
