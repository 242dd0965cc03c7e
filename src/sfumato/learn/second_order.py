"""Batch norm of a batch by itself, whose second derivative is a few passes over its maps.

PyTorch composes that from some forty operations, each a pass over maps of full size: a third and more of a
MAML step of a small convolutional network. torch.func cannot take it.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

_backward = torch.ops.aten.native_batch_norm_backward


def with_quick_norms(network: nn.Module) -> nn.Module:
    """Replaces, in place, a network's batch norms without running statistics by those of this module.

    Promises: outputs, gradients and their gradients are equal up to rounding.
    """
    for norm in network.modules():
        if isinstance(norm, _BatchNorm) and norm.running_mean is None and norm.affine:
            norm.forward = partial(_forward, norm)  # type: ignore[method-assign]
    return network


def _forward(norm: _BatchNorm, rows: Tensor) -> Tensor:
    if rows.numel() == norm.num_features:  # one number a channel, which PyTorch refuses in its own words
        return type(norm).forward(norm, rows)
    normalised: Tensor = _Normalise.apply(rows, norm.weight, norm.bias, norm.eps)  # type: ignore[no-untyped-call]
    return normalised


class _Normalise(torch.autograd.Function):
    """(n, C, ...) -> (n, C, ...). Ioffe & Szegedy 2015, Algorithm 1."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        outputs, mean, scale = torch.native_batch_norm(rows, weight, bias, None, None, True, 0.0, eps)
        ctx.save_for_backward(rows, weight, mean, scale)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return *_Gradient.apply(*gradients, *ctx.saved_tensors), None  # type: ignore[no-untyped-call]


class _Gradient(torch.autograd.Function):
    """Its gradient: g, x, w, mean, r -> w·r·P(g), Σ g·x̂ and Σ g.

    x̂ = (x - mean)·r, and P(v) = v - mean(v) - x̂·mean(v·x̂), which is symmetric: Σ a·P(g) = Σ P(a)·g.
    """

    @staticmethod
    def forward(
        ctx: Any, slope: Tensor, rows: Tensor, weight: Tensor, mean: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        slope = _in_order_of(rows, slope)
        of_rows, of_weight, of_bias = _backward(
            slope, rows, weight, None, None, mean, scale, True, 0.0, [True, True, True]
        )
        ctx.save_for_backward(slope, rows, weight, mean, scale, of_weight, of_bias)
        return of_rows, of_weight, of_bias

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        """The derivatives of L = Σ a·w·r·P(g) + b·Σ g·x̂ + c·Σ g, by g, x and w; a, b, c are given.

        With M numbers a channel, S = Σ a·P(g) and u = b·g - w·r·(a·mean(g·x̂) + g·mean(a·x̂)):
        ∂L/∂g = w·r·P(a) + b·x̂ + c,  ∂L/∂x = r·P(u) - w·r²·x̂·S/M,  ∂L/∂w = r·S.
        """
        slope, rows, weight, mean, scale, of_weight, of_bias = ctx.saved_tensors
        a, b, c = _in_order_of(rows, given[0]), given[1], given[2]
        count = rows.numel() / rows.shape[1]
        none, one = torch.zeros_like(scale), torch.ones_like(scale)
        by_slope, products, sums = _backward(
            a, rows, weight, None, None, mean, scale, True, 0.0, [True, True, True]
        )
        # Σ a·g, by the kernel that sums products of a gradient and normalised values.
        together = _backward(a, slope, one, None, None, none, one, True, 0.0, [False, True, False])[1]
        a_mean, a_x, g_mean, g_x = sums / count, products / count, of_bias / count, of_weight / count
        inner = together - count * (a_mean * g_mean + a_x * g_x)  # S
        rate = weight * scale
        by_slope.add_(_affine(rows, b * scale, c - b * scale * mean))
        of_slope = b - rate * a_x
        u_mean = of_slope * g_mean - rate * g_x * a_mean
        u_x = of_slope * g_x - rate * g_x * a_x
        of_x = -scale * (scale * (u_x + rate * inner / count))
        by_rows = _affine(rows, of_x, -scale * u_mean - of_x * mean)
        by_rows.add_(_affine(a, -scale * rate * g_x, none)).add_(_affine(slope, scale * of_slope, none))
        return by_slope, by_rows, scale * inner, None, None


def _in_order_of(rows: Tensor, other: Tensor) -> Tensor:
    """Rows in the memory order of another tensor: kernels for two orders are slow."""
    if rows.dim() == 4 and rows.is_contiguous(memory_format=torch.channels_last):
        return other.contiguous(memory_format=torch.channels_last)
    return other


def _affine(rows: Tensor, factor: Tensor, shift: Tensor) -> Tensor:
    """Each channel times a factor and plus a number, in one pass."""
    mean, variance = torch.zeros_like(factor), torch.ones_like(factor)
    return torch.native_batch_norm(rows, factor, shift, mean, variance, False, 0.0, 0.0)[0]
