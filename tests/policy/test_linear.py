import copy

import pytest
import torch

from springtide.policy.linear import MINIMUM_PRODUCTS, infer_with_onednn, train_with_onednn

WIDTH = 64
ROWS = 2 * MINIMUM_PRODUCTS // (WIDTH * WIDTH)


def layers(*, bias, frozen=False):
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH, bias=bias), torch.nn.Linear(WIDTH, WIDTH, bias=bias))
    if frozen:
        plain[1].requires_grad_(False)
    fast = copy.deepcopy(plain)
    train_with_onednn(fast)
    return plain, fast


def outcome(model, shape, *, dtype=None):
    torch.manual_seed(1)
    states = torch.randn(*shape, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        result = model(states)
    result.square().sum().backward()
    return [result, states.grad, *(parameter.grad for parameter in model.parameters())]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (2, ROWS // 2, WIDTH), (3, WIDTH)])
def test_products_and_gradients_are_those_of_the_plain_layers(bias, shape):
    plain, fast = layers(bias=bias)
    for found, wanted in zip(outcome(fast, shape), outcome(plain, shape), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (2, ROWS // 2, WIDTH), (3, WIDTH)])
def test_products_without_gradient_are_those_of_the_plain_layers(bias, shape):
    plain, _ = layers(bias=bias)
    fast = copy.deepcopy(plain)
    infer_with_onednn(fast)
    states = torch.randn(*shape)
    with torch.inference_mode():
        torch.testing.assert_close(fast(states), plain(states), rtol=1e-4, atol=1e-3)


def test_a_frozen_layer_gets_no_gradient():
    plain, fast = layers(bias=False, frozen=True)
    found, wanted = outcome(fast, (ROWS, WIDTH)), outcome(plain, (ROWS, WIDTH))
    assert found[-1] is None
    torch.testing.assert_close(found[:3], wanted[:3], rtol=1e-4, atol=1e-3)


def test_autocast_decides_the_precision():
    plain, fast = layers(bias=False)
    found, wanted = (outcome(model, (ROWS, WIDTH), dtype=torch.bfloat16) for model in (fast, plain))
    assert found[0].dtype is torch.bfloat16
    torch.testing.assert_close(found, wanted)


def test_a_copy_computes_with_its_own_weights():
    _, fast = layers(bias=False)
    clone = copy.deepcopy(fast)
    with torch.no_grad():
        clone[0].weight.zero_()
        assert not clone(torch.ones(ROWS, WIDTH)).any()
        assert fast(torch.ones(ROWS, WIDTH)).any()
