"""Batch norm of a batch, or of batches, that several processes share."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from sfumato.errors import ConfigError
from sfumato.learn.devices import Devices


@contextmanager
def of_whole_batches(model: nn.Module, devices: Devices) -> Iterator[None]:
    """Within, batch norms normalise by the statistics of the rows of all processes, who share a batch.

    Promises: outputs, running statistics, and, where the losses of the processes add up to the loss of the
    batch, the sum of the gradients are those of one process with the whole batch, but for rounding. Only
    what is in training mode is changed. torch.nn.SyncBatchNorm does so on CUDA alone.
    """
    norms = [] if devices.count == 1 else _norms(model)
    for norm in norms:
        norm.forward = partial(_forward, norm, devices)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


@contextmanager
def in_order(model: nn.Module, devices: Devices) -> Iterator[None]:
    """Around a step of several batches, each of one process: running statistics end as if one had seen all.

    It would have seen the batches of the first process, then those of the second, and so on. A running
    statistic is r <- (1 - m)·r + m·s, and no output in training depends on it. So a process may begin at 0:
    what it ends with is what its batches add, and it fades with each batch that comes after them.

    Raises:
        ConfigError: a batch norm of the model takes the mean over all batches (momentum=None).
    """
    if devices.count == 1:
        yield
        return
    norms = [norm for norm in _norms(model) if norm.running_mean is not None]
    seen = [_counter(norm).clone() for norm in norms]
    for norm in norms:
        if norm.momentum is None:
            raise ConfigError(
                "a batch norm with momentum=None, and several processes: give it a momentum, such as 0.1"
            )
        for each in _statistics(norm) if devices.rank else [_counter(norm)]:
            each.zero_()
    yield
    if not norms:
        return
    counts = torch.stack([_counter(norm) for norm in norms])[None]  # (1, M)
    mine = slice(devices.rank, devices.rank + 1)
    counts = devices.gathered(counts, mine, devices.count)  # (P, M), batches that each has seen
    later = counts[mine.stop :].sum(0).tolist()
    for norm, batches in zip(norms, later, strict=True):
        for each in _statistics(norm)[1:]:
            each.mul_((1 - (norm.momentum or 0.0)) ** batches)
    devices.sum_([each for norm in norms for each in _statistics(norm)])
    for norm, before in zip(norms, seen, strict=True):
        _counter(norm).add_(before)


def _norms(model: nn.Module) -> list[_BatchNorm]:
    return [each for each in model.modules() if isinstance(each, _BatchNorm)]


def _statistics(norm: _BatchNorm) -> list[Tensor]:
    """The number of batches, the mean and the variance."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return [_counter(norm), norm.running_mean, norm.running_var]


def _counter(norm: _BatchNorm) -> Tensor:
    assert norm.num_batches_tracked is not None
    return norm.num_batches_tracked


def _forward(norm: _BatchNorm, devices: Devices, rows: Tensor) -> Tensor:
    if not norm.training:
        return type(norm).forward(norm, rows)
    outputs, mean, variance, count = _Normalise.apply(  # type: ignore[no-untyped-call]
        rows, norm.weight, norm.bias, norm.eps, devices
    )
    assert norm.momentum is not None
    counter, running_mean, running_variance = _statistics(norm)
    with torch.no_grad():
        counter.add_(1)
        running_mean.lerp_(mean, norm.momentum)
        running_variance.lerp_(variance * count / (count - 1), norm.momentum)
    normalised: Tensor = outputs
    return normalised


class _Normalise(torch.autograd.Function):
    """Batch norm of the rows of all processes. Ioffe & Szegedy 2015, Algorithm 1, and the gradient of Sec. 3.

    (n, C, ...) -> (n, C, ...), the (C,) mean and variance over all rows, and the number that they are over.
    Statistics and sums are float32 whatever the rows are.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, devices: Devices
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # Parts are joined by their means and variances (Chan, Golub & LeVeque 1983): a difference
        # of large sums would lose the digits of a small variance.
        # The sums of one process's batch norm, at a third of the time of var_mean.
        mean, variance = torch.batch_norm_update_stats(rows.float(), None, None, 0.0)
        own = mean.new_full((1,), rows.numel() / rows.shape[1])
        mine = slice(devices.rank, devices.rank + 1)
        parts = devices.gathered(torch.cat([own, mean, variance])[None], mine, devices.count)
        counts, means, variances = parts.split([1, len(mean), len(mean)], dim=1)  # (P, 1), (P, C), (P, C)
        count = counts.sum()
        shares = counts / count
        mean = (shares * means).sum(0)
        variance = (shares * (variances + (means - mean).square())).sum(0)
        ctx.save_for_backward(rows, weight, mean, variance, count)
        ctx.devices, ctx.eps = devices, eps
        outputs = functional.batch_norm(rows, mean, variance, weight, bias, eps=eps)
        ctx.mark_non_differentiable(mean, variance, count)
        return outputs, mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, mean, variance, count = ctx.saved_tensors
        scale = (variance + ctx.eps).rsqrt()
        weights = torch.ones_like(mean) if weight is None else weight
        # As if the rows of this process were all, but for the statistics.
        of_rows, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            gradient, rows, weights, None, None, mean, scale, True, ctx.eps, [True, True, True]
        )
        # Each gradient less the means over all rows, of it and of its products: not those over the own ones.
        sums = torch.stack([of_weight, of_bias])
        own = sums * (rows.shape[1] / rows.numel())
        ctx.devices.sum_([sums])
        by_weight, by_bias = ((own - sums / count) * scale * weights).unbind()
        of_rows = of_rows + functional.batch_norm(rows, mean, variance, by_weight, by_bias, eps=ctx.eps)
        return of_rows, *((None, None) if weight is None else (of_weight, of_bias)), None, None
