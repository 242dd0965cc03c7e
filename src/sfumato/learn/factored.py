"""Learning many tasks at once with fully connected networks, without a copy of the weights for each task.

A step of gradient descent on a task takes rate * d'x from the weight W of a linear layer: x are the inputs
(n, in) of its n support images, d the derivatives (n, out) of the loss at its outputs. Other inputs h give

    h (W - rate d'x)' = h W' - rate (h x') d,

so that all tasks share one product by W, and a task's learning costs products of n by n. Noise N on its
steps is one more product, h N', and has no part in derivatives by W. Those, which clipping needs task by
task, are sums of such outer products as well: they are noted while autograd goes back, and multiplied out
once. Exact up to rounding, and several times as fast as a weight matrix a task (benchmarks/learning.py).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.learn.tasks import Inner, Tasks

_TINY = 1e-12
_Key = tuple[int, str]  # of a parameter: the index of its layer, and its name there
_Pairs = list[tuple[Tensor, Tensor]]  # (n, T, out) and (n, T, in), whose outer products are summed


def applies(layers: Sequence[nn.Module] | None, inner: Inner) -> bool:
    """Whether `contributions` works this way: for these layers, with one rate for all parameters."""
    known = (nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Tanh)
    return (
        layers is not None
        and inner.algorithm != "meta-sgd"  # with a rate for each weight, learning has no two factors
        and all(isinstance(layer, known) and getattr(layer, "affine", True) for layer in layers)
    )


def contributions(
    layers: Sequence[nn.Module], vector: Tensor, tasks: Tasks, inner: Inner, noise: Tensor
) -> Tensor:
    """See `adaptation.contributions`. -> (T, D). `vector`: (P,) parameters, and the clipping norm, if any."""
    run = _Learning(layers, vector, len(tasks), inner, noise)
    # (T, n, C, H, W) -> (n, T, C * H * W): batch norm treats the tasks as channels.
    support, queries = (each.flatten(2).transpose(0, 1).contiguous() for each in tasks.parts[::2])
    labels, asked = tasks.support_labels.T, tasks.query_labels.T
    if inner.algorithm != "reptile":
        return run.derivative(run.learn(support, labels, inner.algorithm == "maml"), queries, asked)
    images, names = torch.cat([support, queries]), torch.cat([labels, asked])
    moved = run.way_back(run.learn(images, names, False))
    if inner.clipping_norm is not None:
        moved[:, -1] = run.derivative(run.learn(images, names, True), images, names)[:, -1]
    return moved


class _Shared(torch.autograd.Function):
    """(n, T, in) inputs of T tasks times one weight (out, in), whose derivative is noted task by task."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, noted: _Pairs, back: bool) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.noted, ctx.back = noted, back
        return inputs @ weight.T

    @staticmethod
    def backward(ctx: Any, derivative: Tensor) -> tuple[Tensor | None, None, None, None]:
        inputs, weight = ctx.saved_tensors
        pair = derivative.detach(), inputs.detach()
        ctx.noted.append(pair[::-1] if ctx.back else pair)
        # A product by this weight again, whose derivative is noted when autograd goes back through here.
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        return _multiply(derivative, weight.T, ctx.noted, not ctx.back), None, None, None


_multiply: Callable[[Tensor, Tensor, _Pairs, bool], Tensor] = _Shared.apply


class _Learned(NamedTuple):
    """The learning of T tasks."""

    steps: dict[int, _Pairs]  # directions and inputs whose outer products left the weight of a linear layer
    own: dict[_Key, Tensor]  # (T, size) of each of the other parameters
    noise: Tensor | None = None  # (T, P), the sum of that of the steps, not subtracted from weights yet


class _Learning:
    """T tasks that learn from the same start. State: the derivatives noted so far."""

    def __init__(
        self, layers: Sequence[nn.Module], vector: Tensor, count: int, inner: Inner, noise: Tensor
    ) -> None:
        self._layers, self._vector, self._count = layers, vector, count
        self._inner, self._noise = inner, noise
        self._slices: dict[_Key, slice] = {}
        self._weights: dict[int, Tensor] = {}
        self._own: dict[_Key, Tensor] = {}
        at = 0
        for place, layer in enumerate(layers):
            for name, parameter in layer.named_parameters():
                part = slice(at, at + parameter.numel())
                at = part.stop
                self._slices[place, name] = part
                values = vector[part].detach()
                if isinstance(layer, nn.Linear) and name == "weight":
                    self._weights[place] = values.view(parameter.shape).requires_grad_()
                else:
                    self._own[place, name] = values.expand(count, -1).clone().requires_grad_()
        self._norm = vector[-1].expand(count).clone().requires_grad_()  # without one it is not used
        # (T, 1) by which noise is subtracted, the same in every step
        self._factor = inner.rate * inner.noise_multiplier * self._norm[:, None]
        self._noted: dict[int, _Pairs] = {place: [] for place in self._weights}

    def learn(self, images: Tensor, labels: Tensor, traced: bool) -> _Learned:
        """Learns from (n, T, in) images with (n, T) labels; `traced`: to be differentiated through."""
        inner = self._inner
        learned = _Learned({place: [] for place in self._weights}, self._own)
        for (seen, names), drawn in zip(inner.parts(images, labels), self._noise.unbind(1), strict=True):
            loss, passed = self._loss(learned, seen, names)
            wanted = [*(outputs for _, _, outputs in passed), *learned.own.values()]
            found = torch.autograd.grad(loss, wanted, create_graph=traced)
            if not traced:  # without the graph; without any it is the same tensor, which `_add` looks for
                passed = [(at, x.detach() if x.requires_grad else x, out) for at, x, out in passed]
            ahead, rest = found[: len(passed)], dict(zip(learned.own, found[len(passed) :], strict=True))
            rate = loss.new_full((self._count,), inner.rate)
            if inner.clipping_norm is not None:
                rate = rate * (self._norm / _lengths(passed, ahead, rest)).clamp(max=1.0)
            steps = {
                place: _add(learned.steps[place], rate[:, None] * each, inputs)
                for (place, inputs, _), each in zip(passed, ahead, strict=True)
            }
            own = {key: value - rate[:, None] * rest[key] for key, value in learned.own.items()}
            noise = None
            if inner.noise_multiplier:
                own = {key: value - self._factor * drawn[:, self._slices[key]] for key, value in own.items()}
                noise = drawn if learned.noise is None else learned.noise + drawn
            learned = _Learned(steps, own, noise)
        return learned

    def derivative(self, learned: _Learned, images: Tensor, labels: Tensor) -> Tensor:
        """The derivative of the images' loss after learning by the start and the norm. -> (T, D)."""
        loss, _ = self._loss(learned, images, labels)
        leaves = [*self._own.values(), self._norm, *self._weights.values()]
        for pairs in self._noted.values():
            pairs.clear()  # those of learning
        found = torch.autograd.grad(loss, leaves, allow_unused=True)  # a weight's own is None: it was noted
        whole = self._vector.new_zeros(self._count, len(self._vector))
        for place, pairs in self._noted.items():
            whole[:, self._slices[place, "weight"]] = _outer(pairs)
        for key, value in zip(self._own, found, strict=False):
            whole[:, self._slices[key]] = value
        if (by_norm := found[len(self._own)]) is not None:
            whole[:, -1] = by_norm
        return whole

    def way_back(self, learned: _Learned) -> Tensor:
        """The way from the learned parameters back to the start. -> (T, D)."""
        whole = self._vector.new_zeros(self._count, len(self._vector))
        for place, pairs in learned.steps.items():
            part = self._slices[place, "weight"]
            whole[:, part] = _outer(pairs)
            if learned.noise is not None:
                whole[:, part] += self._factor.detach() * learned.noise[:, part]
        for key, value in learned.own.items():
            whole[:, self._slices[key]] = (self._own[key] - value).detach()
        return whole

    def _loss(
        self, learned: _Learned, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, list[tuple[int, Tensor, Tensor]]]:
        """The sum over tasks of mean cross-entropy; and for each linear layer: index, inputs, outputs."""
        passed, here = [], images
        for place, layer in enumerate(self._layers):
            own = {name: learned.own[place, name] for name, _ in layer.named_parameters() if name != "weight"}
            match layer:
                case nn.Linear():
                    outputs = _multiply(here, self._weights[place], self._noted[place], False)
                    for ahead, inputs in learned.steps[place]:
                        products = torch.bmm(_gram(here, inputs), ahead.transpose(0, 1))  # (T, m, out)
                        outputs = outputs - products.transpose(0, 1)
                    if learned.noise is not None:
                        noise = learned.noise[:, self._slices[place, "weight"]]
                        weights = noise.unflatten(1, layer.weight.shape)
                        by_noise = torch.bmm(here.transpose(0, 1), weights.mT).transpose(0, 1)
                        outputs = outputs - self._factor * by_noise
                    if layer.bias is not None:
                        outputs = outputs + own["bias"]
                    passed.append((place, here, outputs))
                    here = outputs
                case nn.BatchNorm1d():
                    weight, bias = learned.own[place, "weight"].flatten(), own["bias"].flatten()
                    flat = functional.batch_norm(
                        here.flatten(1), None, None, weight, bias, training=True, eps=layer.eps
                    )
                    here = flat.view_as(here)
                case _:
                    here = layer(here)
        loss = functional.cross_entropy(here.flatten(0, 1), labels.flatten(), reduction="sum")
        return loss / len(images), passed


def _lengths(
    passed: list[tuple[int, Tensor, Tensor]], ahead: Sequence[Tensor], rest: dict[_Key, Tensor]
) -> Tensor:
    """The L2 norm of each task's gradient over all parameters, or a tiny number. -> (T,)."""
    squares = [each.square().sum(1) for each in rest.values()]
    for (_, inputs, _), each in zip(passed, ahead, strict=True):
        squares.append((_gram(each, each) * _gram(inputs, inputs)).sum((1, 2)))
    return torch.stack(squares).sum(0).clamp(min=_TINY**2).sqrt()


def _gram(first: Tensor, second: Tensor) -> Tensor:
    """(m, T, d), (n, T, d) -> (T, m, n) inner products."""
    return torch.bmm(first.transpose(0, 1), second.permute(1, 2, 0))


def _add(steps: _Pairs, ahead: Tensor, inputs: Tensor) -> _Pairs:
    """Adds one step; the first layer has the same inputs again and again, and keeps them once."""
    for place, (before, known) in enumerate(steps):
        if known is inputs:
            return [*steps[:place], (before + ahead, inputs), *steps[place + 1 :]]
    return [*steps, (ahead, inputs)]


def _outer(pairs: _Pairs) -> Tensor:
    """-> (T, out * in), the sum of the outer products."""
    left, right = (torch.cat(each).detach() for each in zip(*pairs, strict=True))
    return torch.bmm(left.permute(1, 2, 0), right.transpose(0, 1)).flatten(1)
