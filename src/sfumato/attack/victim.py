"""What a client shares, differentiable back to the images, and what the adversary knows of it."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn import functional

from sfumato.attack.saturation import check_bounds
from sfumato.errors import ConfigError, DataError

Gradients = Mapping[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
Moments = dict[str, tuple[Tensor, Tensor]]  # name of a batch norm layer -> mean and variance of its inputs

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


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
        local_steps, local_rate: of SGD behind the shared difference of parameters, before minus after
            (FedAvg), simulated on the guess (Dimitrov et al. 2022, Algorithm 1); 1 of rate 1 is the gradient.
        local_batch: b, the images of each of these steps; None: all B. Step t takes images t·b to t·b + b of
            the batch, and starts again at its end. If the client shuffles in each epoch, this order is right
            for the first only (the source has a prior for the others).
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
        check_bounds(self, "local_rate", batch=1, local_steps=1, noise=0)
        if self.labels is not None and tuple(self.labels.shape) != (self.batch,):
            raise ConfigError(
                f"labels of shape {tuple(self.labels.shape)}: one for each of the {self.batch} images"
            )
        if self.local_batch is not None and not 1 <= self.local_batch <= self.batch:
            raise ConfigError(
                f"local_batch={self.local_batch}: a step sees 1 to {self.batch} images, those of the batch"
            )


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

    `model`: in its training mode; nothing of it changes. (B, C, H, W) float, its input, and (B,) int64, or
    (B, classes) probabilities. Local steps: see ThreatModel.
    """
    count, *sides = images.shape
    knows = ThreatModel(
        shape=(sides[0], sides[1], sides[2]),
        batch=count,
        local_steps=local_steps,
        local_rate=local_rate,
        local_batch=local_batch,
    )
    victim = Victim(model, loss, knows)
    gradients = victim.shared_by(images, labels, many=False)[0].detach()
    parts = gradients.split([weight.numel() for weight in victim.parameters.values()])
    named = zip(victim.parameters.items(), parts, strict=True)
    return {name: part.reshape(weight.shape) for (name, weight), part in named}


class Victim:
    """A copy of the model whose shared gradients are differentiable in the images. State: the copy."""

    def __init__(self, model: nn.Module, loss: Loss, knows: ThreatModel, *, statistics: bool = False) -> None:
        # A copy, since batch norm in training mode would move the statistics of the model itself.
        self.model = copy.deepcopy(model)
        self.running: Moments = {}  # of the batch norm layers whose inputs are recorded
        for name, module in self.model.named_modules():
            if statistics and isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
                self.running[name] = (module.running_mean, module.running_var)  # type: ignore[assignment]
            if isinstance(module, _BATCH_NORMS) and module.training:
                # Only statistics of the batch: in-place changes cannot be differentiated.
                module.running_mean = module.running_var = module.num_batches_tracked = None
                module.track_running_stats = False
        self._loss, self._steps, self._rate = loss, knows.local_steps, knows.local_rate
        self._size = knows.local_batch
        self.parameters: dict[str, Tensor] = {
            name: weight for name, weight in self.model.named_parameters() if weight.requires_grad
        }
        if not self.parameters:
            raise ConfigError("no parameter of this model is trained: there is no gradient to share")
        self.norms = tuple(self.running)
        self.device = next(iter(self.parameters.values())).device
        self._inputs: dict[str, Tensor] = {}
        for name in self.norms:
            self.model.get_submodule(name).register_forward_pre_hook(
                lambda _, inputs, name=name: self._inputs.update({name: inputs[0]})
            )

    def shared_by(self, images: Tensor, labels: Tensor, *, many: bool) -> tuple[Tensor, Moments]:
        """Compute gradients, (P,), and moments of inputs of `norms`, differentiable; `many`: inside vmap."""

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

        size = self._size or len(images)
        parts = [slice(begin, begin + size) for begin in range(0, len(images), size)]  # of an epoch

        def gradients_at(parameters: Gradients, step: int) -> tuple[Gradients, Moments]:
            at = parts[step % len(parts)]
            if many:
                gradients, moments = grad(lost, has_aux=True)(parameters, at)
                return gradients, moments
            value, moments = lost(parameters, at)
            slopes = torch.autograd.grad(value, list(parameters.values()), create_graph=True)
            return dict(zip(parameters, slopes, strict=True)), moments

        def flat(gradients: Gradients) -> Tensor:
            return torch.cat([gradients[name].flatten() for name in self.parameters])

        moved = self.parameters
        gradients, moments = gradients_at(self.parameters, 0)
        total = flat(gradients)
        for step in range(1, self._steps):
            moved = {name: weight - self._rate * gradients[name] for name, weight in moved.items()}
            gradients, _ = gradients_at(moved, step)
            total = total + flat(gradients)
        return self._rate * total, moments


def layers_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """List the modules with parameters of their own, by name, in the order of registration."""
    return [(name, module) for name, module in model.named_modules() if [*module.parameters(recurse=False)]]


def check_gradient(name: str, gradient: Tensor, parameter: Tensor) -> None:
    """Raise DataError for a gradient of another shape than its parameter, or that is not finite."""
    if gradient.shape != parameter.shape:
        raise DataError(
            f"the gradient of {name} is {tuple(gradient.shape)} where the parameter is "
            f"{tuple(parameter.shape)}: it is of another model"
        )
    if not bool(gradient.isfinite().all()):
        raise DataError(f"the gradient of {name} has numbers that are not finite, so nothing can be read")
