"""Learning a task from few images, and its contribution to the start: meta-learning as pure functions.

Sources: MAML, Finn, Abbeel & Levine 2017, Algorithm 2; Reptile, Nichol, Achiam & Schulman 2018, Algorithm 1;
Meta-SGD, Li et al. 2017, Algorithm 1. A contribution is a direction to subtract: the gradient of the queries'
loss after learning the support, or for Reptile the way from the end of learning back to its start.

The parameters of all layers, and for Meta-SGD one learning rate for each, are one vector: a task's
contribution can then be clipped as a whole, and nothing of a task is left anywhere else.
"""

import copy
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from sfumato.base.hardware import autocast
from sfumato.errors import ConfigError
from sfumato.learn.tasks import Frame, Inner, Tasks

_backward = torch.ops.aten.native_batch_norm_backward

WAYS = ("vectorised", "loop")
_AT_ONCE = 32  # tasks of one vectorised call: the memory of its gradients does not grow with the batch
_SMALL = 20_000  # parameters of a convolutional network whose tasks are computed in one call


class _Own(threading.local):
    """A network for each thread: `functional_call` puts parameters into it, for others to see."""

    def __init__(self, network: nn.Module) -> None:
        self.network = copy.deepcopy(network).to("meta")
        self.quick = with_quick_norms(copy.deepcopy(self.network))


class Learner:
    """A network with parameters from outside, as one vector of `size` P. State: none that changes."""

    def __init__(self, network: nn.Module, *, precision: str = "float32") -> None:
        """Takes the architecture of `network`. Raises ConfigError: it has buffers, which carry tasks on."""
        buffers = [name for name, _ in network.named_buffers()]
        if buffers:
            raise ConfigError(
                f"the network keeps {buffers[0]} from batch to batch, which carries one task into the next: "
                "use batch norm with track_running_stats=False"
            )
        self._network = network  # only read, and copied
        self._own = _Own(network)
        self._shapes = {name: each.shape for name, each in network.named_parameters()}
        self._precision, self.mixed = precision, precision != "float32"
        self.size = sum(shape.numel() for shape in self._shapes.values())
        self.convolutional = any(isinstance(module, nn.Conv2d) for module in network.modules())

    def initial(self) -> Tensor:
        """(P,) the initial parameters of the network."""
        return torch.cat([each.detach().flatten() for each in self._network.parameters()])

    def logits(self, parameters: Tensor, images: Tensor, *, quick: bool = False) -> Tensor:
        """(P,), (n, C, H, W) -> (n, way). `quick`: by faster operations, which torch.func cannot take."""
        quick = quick and images.device.type == "cpu"
        laid, network = (_channels_last, self._own.quick) if quick else (Tensor.contiguous, self._own.network)
        parts = parameters.split([shape.numel() for shape in self._shapes.values()])
        pairs = zip(parts, self._shapes.items(), strict=True)
        named = {name: laid(part.view(shape)) for part, (name, shape) in pairs}
        with autocast(self._precision, images.device):
            found: Tensor = functional_call(network, named, (laid(images),))
        return found.to(parameters.dtype)

    def loss(self, parameters: Tensor, images: Tensor, labels: Tensor, *, quick: bool = False) -> Tensor:
        """Mean cross-entropy; `quick`: see logits."""
        return functional.cross_entropy(self.logits(parameters, images, quick=quick), labels)


def _channels_last(tensor: Tensor) -> Tensor:
    """The same numbers with the channels next to each other, if there are four axes."""
    if tensor.dim() != 4:
        return tensor
    if tensor.shape[1] > 1:
        return tensor.contiguous(memory_format=torch.channels_last)
    # For one channel both orders are the same memory, and only the strides tell them apart.
    return tensor.contiguous().view(*tensor.shape[:1], *tensor.shape[2:], 1).permute(0, 3, 1, 2)


def fastest(learner: Learner, device: torch.device) -> str:
    """The fastest way to compute contributions, as measured (benchmarks/learning.py): one of WAYS.

    A processor has no fast convolution with different weights for each image: it computes tasks one by one,
    a core each, unless the network is so small that calls cost more than arithmetic. Mixed precision has only
    the loop: vmap has no norm of bfloat16 maps.
    """
    slow = learner.mixed or (learner.convolutional and learner.size > _SMALL and device.type == "cpu")
    return "loop" if slow else "vectorised"


def contributions(
    learner: Learner,
    start: Tensor,
    tasks: Tasks,
    inner: Inner,
    *,
    way: str | None = None,
    noise: Tensor | None = None,
    frame: Frame | None = None,
) -> Tensor:
    """Each task's contribution to the meta-update. -> (T, D).

    D is P, 2P for Meta-SGD (the rates come last), and one more with `inner.clipping_norm`: the derivative of
    the queries' loss by it comes last of all. Reptile has no queries, and takes the loss of all images.

    Args:
        start: (P,) parameters before learning; (2P,) for Meta-SGD.
        way: "vectorised", one call for all tasks, or "loop", a task a core; None for the fastest.
        noise: (T, steps, P) of a standard normal distribution, for `inner.noise_multiplier`.
        frame: the coordinates of clipping; None for those of the gradients.
    """
    way = way or fastest(learner, start.device)
    if way == "vectorised" and learner.mixed:
        raise ConfigError("way='vectorised' is not for mixed precision: take 'loop'")
    wanted = (len(tasks), inner.steps, learner.size)
    if inner.noise_multiplier and (noise is None or noise.shape != wanted):
        raise ConfigError(f"noise_multiplier={inner.noise_multiplier:g}: give noise of the shape {wanted}")
    if noise is None:
        noise = start.new_zeros(len(tasks), inner.steps, 1)
    norms = [] if inner.clipping_norm is None else [inner.clipping_norm]
    vector = torch.cat([start, start.new_tensor(norms)])
    if not len(tasks):
        return vector.new_zeros(0, len(vector))
    loop = _Loop(learner, inner, frame, traced=way == "vectorised")
    return _of_each(loop.contribution, vector, (*tasks.parts, noise), way)


def inner_gradients(learner: Learner, start: Tensor, tasks: Tasks, inner: Inner) -> Tensor:
    """The gradient of each task's first inner step, before it is clipped. -> (T, P)."""
    none, loop = start.new_zeros(0, learner.size), _Loop(learner, inner)
    return _of_each(loop.first, start, tasks.parts, "loop") if len(tasks) else none


def adapt(
    learner: Learner,
    start: Tensor,
    support: Tensor,
    labels: Tensor,
    inner: Inner,
    *,
    generator: torch.Generator | None = None,
    frame: Frame | None = None,
) -> Tensor:
    """Learns one task. (P,) or, for Meta-SGD, (2P,) parameters -> (P,) after learning the support."""
    size, noisy = learner.size, inner.noise_multiplier
    noise = (torch.randn(size, generator=generator) if noisy else start for _ in range(inner.steps))
    loop = _Loop(learner, inner, frame)
    return loop.learn(start.detach(), inner.clipping_norm, support, labels, noise)


def _of_each(one: Callable[..., Tensor], vector: Tensor, batches: tuple[Tensor, ...], way: str) -> Tensor:
    """`one` of the vector and each task, stacked."""
    if way == "vectorised":
        all_at_once = vmap(one, in_dims=(None, *(0 for _ in batches)), chunk_size=_AT_ONCE)
        found: Tensor = all_at_once(vector, *batches)
        return found
    cores = torch.get_num_threads()
    if cores == 1:
        return torch.stack([one(vector, *task) for task in zip(*batches, strict=True)])
    torch.set_num_threads(1)  # of each task's own operations: the tasks fill the cores
    try:
        with ThreadPoolExecutor(cores) as pool:
            return torch.stack(list(pool.map(one, repeat(vector), *batches)))
    finally:
        torch.set_num_threads(cores)


@dataclass(frozen=True)
class _Loop:
    """Learning one task, step by step. State: none."""

    learner: Learner
    inner: Inner
    frame: Frame | None = None
    traced: bool = False  # by torch.func, for one call over all tasks; it fails in several threads at once

    def learn(
        self,
        start: Tensor,
        norm: Tensor | float | None,
        support: Tensor,
        labels: Tensor,
        noise: Iterable[Tensor],
    ) -> Tensor:
        """(P,) after learning the support."""
        size, inner = self.learner.size, self.inner
        parameters = start[:size]
        rates = start[size : 2 * size] if inner.algorithm == "meta-sgd" else inner.rate
        for (images, names), drawn in zip(inner.parts(support, labels), noise, strict=True):
            found = self.gradient(self._loss(images, names), parameters)
            if inner.algorithm == "fomaml":
                found = found.detach()
            if norm is not None:
                found = self._clip_and_noise(found, norm, drawn)
            parameters = parameters - rates * found
        return parameters

    def contribution(self, vector: Tensor, *task: Tensor) -> Tensor:
        """The contribution of a task, and the derivative by the norm, which is last in the vector, if any."""
        support, labels, queries, asked = self._roles(*task[:-1])
        free, reptile = self.inner.clipping_norm is None, self.inner.algorithm == "reptile"

        def learn(point: Tensor) -> Tensor:
            return self.learn(point, None if free else point[-1], support, labels, task[-1])

        moved = (vector[: self.learner.size] - learn(vector)).detach() if reptile else vector
        if reptile and free:
            return moved
        loss = self._loss(queries, asked)
        found = self.gradient(lambda point: loss(learn(point)), vector).detach()
        return torch.cat([moved, found[-1:]]) if reptile else found

    def first(self, vector: Tensor, *task: Tensor) -> Tensor:
        """The first gradient of a task, as it is."""
        images, names = next(self.inner.parts(*self._roles(*task)[:2]))
        return self.gradient(self._loss(images, names), vector[: self.learner.size])

    def _roles(self, *task: Tensor) -> tuple[Tensor, ...]:
        """The images to learn and to judge by, each with labels: for Reptile, all images are both."""
        reptile = self.inner.algorithm == "reptile"
        return (torch.cat(task[::2]), torch.cat(task[1::2])) * 2 if reptile else task

    def _loss(self, images: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
        return partial(self.learner.loss, images=images, labels=labels, quick=not self.traced)

    def gradient(self, function: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
        """The gradient of a function at a point, itself differentiable inside another."""
        if self.traced:
            found: Tensor = grad(function)(point)
            return found
        inside = point.requires_grad  # of another gradient, which goes through this one
        if not inside:
            point = point.detach().requires_grad_()
        (found,) = torch.autograd.grad(function(point), point, create_graph=inside)
        return found

    def _clip_and_noise(self, gradient: Tensor, norm: Tensor | float, noise: Tensor) -> Tensor:
        """g / max(1, |g| / C) + σ C n, in coordinates of the frame. Source: Meta-Clip, Algorithms 1 to 3."""
        if self.frame is not None:
            gradient = (gradient - self.frame.shift) / self.frame.scale
        length: Tensor = gradient.norm().clamp(min=1e-12)
        gradient = gradient * (norm / length).clamp(max=1.0)
        if self.inner.noise_multiplier:
            gradient = gradient + self.inner.noise_multiplier * norm * noise
        return gradient if self.frame is None else self.frame.shift + self.frame.scale * gradient


def with_quick_norms(network: nn.Module) -> nn.Module:
    """Replaces, in place, a network's batch norms without running statistics by quicker ones.

    Promises: outputs, gradients and their gradients are equal up to rounding. The second derivative is a few
    passes over the maps, and not some forty, a third of a MAML step of a small convolutional network.
    """

    def forward(norm: _BatchNorm, rows: Tensor) -> Tensor:
        if rows.numel() == norm.num_features:  # one number a channel, which PyTorch refuses in its own words
            return type(norm).forward(norm, rows)
        normalised: Tensor = _Normalise.apply(rows, norm.weight, norm.bias, norm.eps)  # type: ignore[no-untyped-call]
        return normalised

    for norm in network.modules():
        if isinstance(norm, _BatchNorm) and norm.running_mean is None and norm.affine:
            norm.forward = partial(forward, norm)  # type: ignore[method-assign]
    return network


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
        a, b, c = _in_order_of(rows, given[0]), *given[1:]
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
    last = rows.dim() == 4 and rows.is_contiguous(memory_format=torch.channels_last)
    return other.contiguous(memory_format=torch.channels_last) if last else other


def _affine(rows: Tensor, factor: Tensor, shift: Tensor) -> Tensor:
    """Each channel times a factor and plus a number, in one pass."""
    mean, variance = torch.zeros_like(factor), torch.ones_like(factor)
    return torch.native_batch_norm(rows, factor, shift, mean, variance, False, 0.0, 0.0)[0]
