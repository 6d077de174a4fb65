import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from springtide.training.loss import LossInputs, LossOptions, k3, policy_loss


def inputs(current, *, proximal=None, behaviour=None, advantages, reference=None, inside=None):
    current = torch.as_tensor(current)
    proximal = current.detach() if proximal is None else torch.as_tensor(proximal, dtype=current.dtype)
    return LossInputs(
        current=current,
        proximal=proximal,
        behaviour=proximal if behaviour is None else torch.as_tensor(behaviour, dtype=current.dtype),
        advantages=torch.as_tensor(advantages, dtype=current.dtype),
        inside=torch.ones(len(current), dtype=torch.bool) if inside is None else torch.tensor(inside),
        reference=None if reference is None else torch.as_tensor(reference, dtype=current.dtype),
    )


def test_by_hand():
    # ratio 1.5, A = 2: clipped at 1.2; ratio 0.5, A = 2: not clipped; ratio 0.5, A = -1: clipped at 0.8.
    proximal = torch.zeros(3)
    current = torch.tensor([math.log(1.5), math.log(0.5), math.log(0.5)])
    terms = policy_loss(
        inputs(current, proximal=proximal, advantages=[2.0, 2.0, -1.0]), options=LossOptions(importance_cap=None)
    )
    assert terms.total.item() == pytest.approx(-(2 * 1.2) - (2 * 0.5) + 0.8)
    assert terms.sums["clipped"].item() == 2
    assert terms.maxima["ratio"].item() == pytest.approx(1.5)


def test_clip_higher_is_asymmetric():
    current = torch.tensor([math.log(1.25)])
    options = LossOptions(clip_low=0.2, clip_high=0.28)
    terms = policy_loss(inputs(current, proximal=[0.0], advantages=[1.0]), options=options)
    assert terms.total.item() == pytest.approx(-1.25)
    assert terms.sums["clipped"].item() == 0


def test_importance_weight_is_truncated_and_carries_no_gradient():
    current = torch.zeros(2, requires_grad=True)
    behaviour = [math.log(1 / 5), math.log(2.0)]  # weights 5, capped at 2, and 0.5
    terms = policy_loss(inputs(current, behaviour=behaviour, advantages=[1.0, 1.0]), options=LossOptions())
    assert terms.total.item() == pytest.approx(-2.0 - 0.5)
    assert terms.sums["capped"].item() == 1
    assert terms.maxima["drift"].item() == pytest.approx(5.0)
    terms.total.backward()
    assert current.grad is not None
    torch.testing.assert_close(current.grad, torch.tensor([-2.0, -0.5]))


def test_kl_to_the_reference():
    terms = policy_loss(
        inputs(torch.zeros(1), advantages=[0.0], reference=[math.log(2.0)]), options=LossOptions(kl_coefficient=0.1)
    )
    assert terms.total.item() == pytest.approx(0.1 * (2.0 - math.log(2.0) - 1.0))
    assert terms.sums["reference_kl"].item() == pytest.approx(2.0 - math.log(2.0) - 1.0)


def test_k3_is_unbiased():
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.3, 0.3, 0.4])
    expectation = (p * k3(p.log(), q.log())).sum()
    torch.testing.assert_close(expectation, (p * (p.log() - q.log())).sum())


def test_tokens_outside_the_support_have_no_part():
    current = torch.tensor([0.0, -0.1], requires_grad=True)
    terms = policy_loss(
        inputs(current, behaviour=[-80.0, -0.1], advantages=[1.0, 1.0], inside=[False, True]), options=LossOptions()
    )
    assert terms.total.item() == pytest.approx(-1.0)
    terms.total.backward()
    assert current.grad is not None
    assert current.grad[0].item() == 0.0
    assert terms.sums["tokens_inside"].item() == 1


def test_extreme_ratios_stay_finite():
    current = torch.tensor([300.0, -300.0], requires_grad=True)
    terms = policy_loss(
        inputs(
            current, proximal=[0.0, 0.0], behaviour=[-300.0, 300.0], advantages=[1.0, -1.0], reference=[-300.0, 0.0]
        ),
        options=LossOptions(kl_coefficient=0.1),
    )
    terms.total.backward()
    assert terms.total.isfinite()
    assert current.grad is not None
    assert current.grad.isfinite().all()


@given(st.integers(0, 10**6))
def test_gradient_equals_finite_differences(seed):
    generator = torch.Generator().manual_seed(seed)
    n, h = 6, 1e-6
    draw = [torch.randn(n, generator=generator, dtype=torch.float64) * 0.3 for _ in range(5)]
    current, proximal, behaviour, advantages, reference = draw
    options = LossOptions(clip_low=0.2, clip_high=0.3, importance_cap=1.1, kl_coefficient=0.05)

    def value(x):
        return policy_loss(
            inputs(x, proximal=proximal, behaviour=behaviour, advantages=advantages, reference=reference),
            options=options,
        ).total

    x = current.clone().requires_grad_()
    value(x).backward()
    for i in range(n):
        step = torch.zeros(n, dtype=torch.float64)
        step[i] = h
        numeric = (value(current + step) - value(current - step)) / (2 * h)
        kink = min(abs(float((current - proximal)[i].exp()) - edge) for edge in (0.8, 1.3))
        if kink > 1e-4:
            assert x.grad is not None
            assert x.grad[i].item() == pytest.approx(numeric.item(), abs=1e-5)


def peer_dapo_loss(logps, old, sampling, advantages, ref, mask, *, low, high, beta, cap):
    """TRL's documented GRPO loss (loss type "dapo": token mean over the batch), padded, on [batch, length]."""
    ratio = torch.exp(logps - old)
    first = ratio * advantages[:, None]
    second = torch.clamp(ratio, 1 - low, 1 + high) * advantages[:, None]
    per_token = -torch.min(first, second)
    per_token = per_token * torch.clamp(torch.exp(old - sampling), max=cap)
    per_token = per_token + beta * (torch.exp(ref - logps) - (ref - logps) - 1)
    return (per_token * mask).sum() / mask.sum()


@given(st.integers(0, 10**6))
def test_equals_the_loss_of_a_public_peer(seed):
    generator = torch.Generator().manual_seed(seed)
    shape = (5, 7)
    logps, old, sampling, ref = (-torch.rand(shape, generator=generator) * 3 for _ in range(4))
    advantages = torch.randn(5, generator=generator)
    mask = torch.rand(shape, generator=generator) < 0.6
    mask[0, 0] = True
    expected_x, own_x = logps.clone().requires_grad_(), logps.clone().requires_grad_()
    expected = peer_dapo_loss(expected_x, old, sampling, advantages, ref, mask, low=0.2, high=0.28, beta=0.04, cap=2.0)
    own = policy_loss(
        inputs(
            own_x[mask],
            proximal=old[mask],
            behaviour=sampling[mask],
            advantages=advantages[:, None].expand(shape)[mask],
            reference=ref[mask],
        ),
        options=LossOptions(clip_low=0.2, clip_high=0.28, importance_cap=2.0, kl_coefficient=0.04),
    ).total / int(mask.sum())
    torch.testing.assert_close(own, expected)
    own.backward()
    expected.backward()
    torch.testing.assert_close(own_x.grad, expected_x.grad)
