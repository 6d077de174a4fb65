"""Matrix products of linear layers, in float32 on the CPU, by oneDNN instead of the default library.

The default, MKL, falls back to narrower vector instructions on processors of other makers, and oneDNN does not. Results
differ by rounding only. Weights are used in place, so nothing has to be refreshed when they change.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.functional import linear

MINIMUM_PRODUCTS = 1 << 20
"""Multiplications below which the call itself costs more than it saves."""


def has_onednn() -> bool:
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`left` [..., n] times `right` [m, n] transposed, by oneDNN, without gradient."""
    result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
    return result


def train_with_onednn(model: torch.nn.Module) -> None:
    """Switch the plain linear layers of `model`; does nothing where oneDNN is missing or weights are not float32."""
    _switch(model, _trained)


def infer_with_onednn(model: torch.nn.Module) -> None:
    """The same for a model of which no gradient is asked."""
    _switch(model, _inferred)


def _switch(model: torch.nn.Module, forward: Callable[[torch.nn.Linear, torch.Tensor], torch.Tensor]) -> None:
    for module in model.modules() if has_onednn() else ():
        if type(module) is torch.nn.Linear and _plain(module.weight):
            layer: Any = module
            layer.forward = partial(forward, module)


def _plain(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32


def _small(module: torch.nn.Linear, states: torch.Tensor) -> bool:
    return states.numel() * module.out_features < MINIMUM_PRODUCTS


def _inferred(module: torch.nn.Linear, states: torch.Tensor) -> torch.Tensor:
    if _small(module, states):
        return linear(states, module.weight, module.bias)
    return product(states, module.weight, module.bias)


def _trained(module: torch.nn.Linear, states: torch.Tensor) -> torch.Tensor:
    # Autocast asks for another precision, which its own kernels serve.
    if _small(module, states) or not _plain(states) or torch.is_autocast_enabled("cpu"):
        return linear(states, module.weight, module.bias)
    flat = states.reshape(-1, module.in_features)
    result: torch.Tensor = _Product.apply(flat, module.weight)  # type: ignore[no-untyped-call]
    result = result.view(*states.shape[:-1], module.out_features)
    return result if module.bias is None else result + module.bias


class _Product(torch.autograd.Function):
    """states [n, in] times weight [out, in] transposed."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(states, weight)
        return product(states, weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        states, weight = ctx.saved_tensors
        of_states = product(gradient, weight.t()) if ctx.needs_input_grad[0] else None
        of_weight = product(gradient.t(), states.t()) if ctx.needs_input_grad[1] else None
        return of_states, of_weight
