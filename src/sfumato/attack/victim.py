"""What a client shares, differentiable back to the images, and what the adversary knows of it."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn import functional

from sfumato.errors import ConfigError, DataError

Gradients = Mapping[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
Moments = dict[str, tuple[Tensor, Tensor]]  # name of a batch norm layer -> mean and variance of its inputs

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def share(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    loss: Loss = functional.cross_entropy,
    local_steps: int = 1,
    local_rate: float = 1.0,
    local_batch: int | None = None,
) -> dict[str, Tensor]:
    """Return a client's message for a batch: by parameter, the gradient, or the change by local steps.

    Args:
        model: in its training mode; it is not changed, nor are its running statistics.
        images: (B, C, H, W) float, the model's input.
        labels: (B,) int64, or (B, classes) probabilities.
        loss: of logits and labels.
        local_steps, local_rate, local_batch: see ThreatModel.
    """
    victim = Victim(model, loss, local_steps, local_rate, (), local_batch)
    gradients, _ = victim.shared_by(images, labels, many=False)
    return victim.split_by_name(gradients.detach())


def capture(model: nn.Module) -> dict[str, Tensor]:
    """Copy the gradients of a training loop from a model, after `backward` and before `step`.

    Raises:
        DataError: a trained parameter has none.
    """
    trained = {name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad}
    missing = [name for name, gradient in trained.items() if gradient is None]
    if missing:
        raise DataError(
            f"{len(missing)} parameters have no gradient, such as {missing[0]}: call this after backward()"
        )
    return {name: gradient.detach().clone() for name, gradient in trained.items() if gradient is not None}


class Victim:
    """A copy of the model whose shared gradients are differentiable in the images. State: the copy.

    Attributes:
        norms: names of the batch norm layers whose inputs are recorded.
        running: their running mean and variance.
        parameters: the trained ones, by name.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        local_steps: int,
        local_rate: float,
        norms: Sequence[str],
        local_batch: int | None = None,
    ) -> None:
        # A copy, since batch norm in training mode would move the statistics of the model itself.
        self.model = copy.deepcopy(model)
        self.running = {
            name: (module.running_mean, module.running_var)
            for name, module in self.model.named_modules()
            if name in norms
        }
        for module in self.model.modules():
            if isinstance(module, _BATCH_NORMS) and module.training:
                # Only statistics of the batch: in-place changes cannot be differentiated.
                module.running_mean = module.running_var = module.num_batches_tracked = None
                module.track_running_stats = False
        self._loss, self._steps, self._rate, self._batch = loss, local_steps, local_rate, local_batch
        self.parameters: dict[str, Tensor] = {
            name: weight for name, weight in self.model.named_parameters() if weight.requires_grad
        }
        self.names = tuple(self.parameters)
        if not self.names:
            raise ConfigError("no parameter of this model is trained: there is no gradient to share")
        self.norms = tuple(norms)
        self.device = next(iter(self.parameters.values())).device
        self._inputs: dict[str, Tensor] = {}
        for name in norms:
            self.model.get_submodule(name).register_forward_pre_hook(self._keep(name))

    def split_by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """Split (P,) by parameter: name -> its part."""
        parts = flat.split([weight.numel() for weight in self.parameters.values()])
        return {
            name: part.reshape(weight.shape)
            for (name, weight), part in zip(self.parameters.items(), parts, strict=True)
        }

    def shared_by(self, images: Tensor, labels: Tensor, *, many: bool) -> tuple[Tensor, Moments]:
        """Compute gradients in the order of `names`, concatenated, (P,), and moments of inputs of `norms`.

        Both are differentiable in images and labels. With `many` they work inside vmap, where autograd.grad
        cannot be called, at some cost.
        """

        def lost(parameters: Gradients, at: slice) -> tuple[Tensor, Moments]:
            own = parameters is self.parameters and not many
            seen = images[at]
            logits = self.model(seen) if own else functional_call(self.model, dict(parameters), (seen,))
            value = self._loss(logits, labels[at])
            moments = {
                name: (inputs.mean((0, 2, 3)), inputs.var((0, 2, 3), correction=0))
                for name, inputs in self._inputs.items()
            }
            self._inputs.clear()
            return value, moments

        parts = self._parts(len(images))

        def gradients_at(parameters: Gradients, step: int) -> tuple[Gradients, Moments]:
            at = parts[step % len(parts)]
            if many:
                gradients, moments = grad(lost, has_aux=True)(parameters, at)
                return gradients, moments
            value, moments = lost(parameters, at)
            slopes = torch.autograd.grad(value, list(parameters.values()), create_graph=True)
            return dict(zip(parameters, slopes, strict=True)), moments

        gradients, moments = gradients_at(self.parameters, 0)
        total = self._flat(gradients)
        moved: Gradients = self.parameters
        for step in range(1, self._steps):
            moved = {name: moved[name] - self._rate * gradients[name] for name in self.names}
            gradients, _ = gradients_at(moved, step)
            total = total + self._flat(gradients)
        return self._rate * total, moments

    def _parts(self, images: int) -> list[slice]:
        """Return the mini-batches of an epoch."""
        size = self._batch or images
        return [slice(begin, begin + size) for begin in range(0, images, size)]

    def _flat(self, gradients: Gradients) -> Tensor:
        return torch.cat([gradients[name].flatten() for name in self.names])

    def _keep(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            self._inputs[name] = inputs[0]

        return hook


def tracking_norms(model: nn.Module) -> list[str]:
    """List the names of 2-d batch norm layers with running statistics."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None
    ]


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """The adversary's knowledge, in addition to the model and the shared gradient.

    Attributes:
        shape: (C, H, W) of the images.
        batch: B, the number of images behind the gradient.
        labels: (B,) int64, in any order; None if unknown.
        statistics: maps the name of a batch norm layer to mean and variance (C,) of its inputs over the
            batch, for `InversionConfig.statistics`; None: they use the running ones of the model.
        pruned: they know that entries of 0 were pruned, and do not compare these.
        noise: standard deviation of the added noise that they know: a tensor of the gradient is weighted by
            its share of signal.
        local_steps: of SGD behind the shared difference of parameters, before minus after (FedAvg); the
            steps are simulated on the guess (Dimitrov et al. 2022, Algorithm 1).
        local_batch: b, the images of each of these steps; None: all B. Step t takes images t·b to t·b + b of
            the batch, and starts again at its end. If the client shuffles in each epoch, this order is right
            for the first only (the source has a prior for the others).
        local_rate: of these steps; 1 step of rate 1 is the gradient itself.
    """

    shape: tuple[int, int, int]
    batch: int = 1
    labels: Tensor | None = None
    statistics: Mapping[str, tuple[Tensor, Tensor]] | None = None
    pruned: bool = False
    noise: float = 0.0
    local_steps: int = 1
    local_rate: float = 1.0
    local_batch: int | None = None

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise ConfigError(f"shape={self.shape}: channels, height and width of the images")
        for name in ("batch", "local_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if self.labels is not None and tuple(self.labels.shape) != (self.batch,):
            raise ConfigError(
                f"labels of shape {tuple(self.labels.shape)}: one for each of the {self.batch} images"
            )
        if not 0 <= self.noise < math.inf:
            raise ConfigError(f"noise={self.noise}: at least 0, its standard deviation")
        if self.local_batch is not None and not 1 <= self.local_batch <= self.batch:
            raise ConfigError(
                f"local_batch={self.local_batch}: a step sees 1 to {self.batch} images, those of the batch"
            )
        if not 0 < self.local_rate < math.inf:
            raise ConfigError(f"local_rate={self.local_rate}: above 0")


def in_common(knows: ThreatModel) -> tuple[object, ...]:
    """Return the settings that all problems of one call must share."""
    return (
        tuple(knows.shape), knows.batch, knows.pruned, knows.noise, knows.local_steps, knows.local_rate,
        knows.local_batch, knows.labels is None, knows.statistics is None,
    )  # fmt: skip
