"""The victim: what a client shares of a batch, so that it can be followed back to the images."""

import copy
from collections.abc import Callable, Mapping, Sequence

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
    """What a client shares of a batch: name of a parameter -> gradient, or what local steps changed.

    Args:
        model: in the mode that it trains in; left as it is, its running statistics too.
        images: (B, C, H, W) float, as the model takes them.
        labels: (B,) int64, or (B, classes) probabilities.
        loss: of logits and labels.
        local_steps, local_rate, local_batch: see ThreatModel.
    """
    victim = Victim(model, loss, local_steps, local_rate, (), local_batch)
    gradients, _ = victim.shared(images, labels, many=False)
    return victim.named_tensors(gradients.detach())


def captured(model: nn.Module) -> dict[str, Tensor]:
    """The gradients that a training loop has left in a model, after `backward` and before `step`.

    Raises:
        DataError: a parameter that is trained has none.
    """
    trained = {name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad}
    missing = [name for name, gradient in trained.items() if gradient is None]
    if missing:
        raise DataError(
            f"{len(missing)} parameters have no gradient, such as {missing[0]}: call this after backward()"
        )
    return {name: gradient.detach().clone() for name, gradient in trained.items() if gradient is not None}


class Victim:
    """A copy of the model whose shared gradients can be followed back to the images. State: its copy.

    Attributes:
        norms: names of the batch norm layers whose inputs are looked at.
        running: their running mean and variance.
        parameters: those that are trained, by name.
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
                # Statistics of the batch, nothing kept: what is changed in place cannot be followed.
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

    def named_tensors(self, flat: Tensor) -> dict[str, Tensor]:
        """(P,) -> name of a parameter -> its part."""
        parts = flat.split([weight.numel() for weight in self.parameters.values()])
        return {
            name: part.reshape(weight.shape)
            for (name, weight), part in zip(self.parameters.items(), parts, strict=True)
        }

    def shared(self, images: Tensor, labels: Tensor, *, many: bool) -> tuple[Tensor, Moments]:
        """Gradients in the order of `names`, end to end, (P,); mean and variance of the inputs of `norms`.

        Both can be followed back to images and labels; with `many` inside vmap, where autograd cannot be
        called by hand, at some cost.
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
        """The mini-batches of an epoch."""
        size = self._batch or images
        return [slice(begin, begin + size) for begin in range(0, images, size)]

    def _flat(self, gradients: Gradients) -> Tensor:
        return torch.cat([gradients[name].flatten() for name in self.names])

    def _keep(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            self._inputs[name] = inputs[0]

        return hook


def tracking_norms(model: nn.Module) -> list[str]:
    """The names of the batch norm layers of images that have running statistics."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None
    ]
