"""Label inference: read the classes of a batch from the gradient of the last layer, before any image.

Sources: Zhao et al. 2020 (iDLG), Sec. 3, for one image; Geng et al. 2021, Sec. 3.2, for counts of a batch.
Both hold for cross-entropy after a linear layer, and labels that are neither mixed nor smoothed. A gradient
too large for a mean is taken as a sum over the batch; class weights of a loss are not considered.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from sfumato.attack.victim import ThreatModel, layers_of
from sfumato.errors import ConfigError, DataError

_COARSE = (2, 4, 8, 16)  # cells a side of noise, before smoothing
_GREY = 0.75
_STAND_INS = 256  # images
_POINTS = 8  # on the path of local steps
_MOST_MASS = 1.01  # of the negative entries of a mean of p_k - 1 and p_k, up to rounding


def counts(
    model: nn.Module,
    shared: Mapping[str, Tensor],
    batch: int,
    images: Tensor,
    *,
    local_steps: int = 1,
    change: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Count the images of each class in a batch. -> (classes,) int64, with the sum B.

    The gradient by the bias of class k is the mean over the batch of p_k - 1 if the label is k, else of p_k:
    so B * (mean p_k - dL/db_k) images have class k. The probabilities p are not shared: they are estimated
    from (M, C, H, W) float images, any of the adversary's; `stand_ins` suffice for an untrained model.
    Fractions are rounded by largest remainder. One image needs no estimate: its class has the only negative
    gradient. Without a bias, B different classes are assumed.

    `shared`: a gradient, or the sum of those of `local_steps` of SGD. `change`: parameters before minus after
    these: probabilities are averaged over the straight path between both (after Dimitrov et al. 2022). Raises
    ConfigError if no last linear layer gives the logits, and DataError if its gradient is 0, or too large.
    """
    name, last = last_linear(model)
    gradient = slopes(model, shared)
    if not bool(gradient.any()):
        raise DataError(f"the gradient of {name} is 0 everywhere and tells no class")
    _check_gives_logits(model, name, last, images[:2].to(gradient))
    if batch == 1 or last.bias is None:
        # Without a bias, only the sign is known, after activations that are not negative.
        return gradient.argsort()[:batch].cpu().bincount(minlength=last.out_features)
    mass = -float(gradient.clamp(max=0).sum()) / local_steps
    if mass > _MOST_MASS:  # no mean is that large
        if mass > _MOST_MASS * batch:
            raise DataError(
                f"the gradient of {name} is larger than cross-entropy of {batch} images can make it, "
                f"{mass / batch:.3g} times at least: undo the scaling of the loss first"
            )
        gradient = gradient / batch
    with torch.no_grad():
        guess = _probabilities(model, images.to(gradient), change or {}, local_steps)
    exact = (batch * (guess - gradient / local_steps)).clamp(min=0).double().cpu()
    exact *= batch / exact.sum()
    found = exact.floor().to(torch.int64)
    rest = (exact - found).argsort(descending=True)[: batch - int(found.sum())]
    found[rest] += 1
    return found


def counts_of_update(
    model: nn.Module, change: Mapping[str, Tensor], knows: ThreatModel, *, seed: int
) -> Tensor:
    """Count as `counts` from a change of parameters by SGD, with stand-ins for images."""
    images = stand_ins(knows.shape, _STAND_INS, torch.Generator().manual_seed(seed))
    gradient = {name: each / knows.local_rate for name, each in change.items()}
    return counts(model, gradient, knows.batch, images, local_steps=knows.local_steps, change=change)


def slopes(model: nn.Module, shared: Mapping[str, Tensor]) -> Tensor:
    """Return the (classes,) gradient by the last layer's bias; without a bias, values with its signs."""
    name, last = last_linear(model)
    biased = last.bias is not None
    return shared[f"{name}.bias".lstrip(".")] if biased else shared[f"{name}.weight".lstrip(".")].sum(1)


@torch.no_grad()
def _check_gives_logits(model: nn.Module, name: str, last: nn.Linear, images: Tensor) -> None:
    """Raise ConfigError if a layer's outputs are not the model's: modules may be in another order."""
    outputs: list[Tensor] = []
    hook = last.register_forward_hook(lambda _, inputs, output: outputs.append(output))
    try:
        given = model(images)
    finally:
        hook.remove()
    if (
        len(outputs) != 1
        or not isinstance(given, Tensor)
        or given.shape != outputs[0].shape
        or not torch.allclose(given.log_softmax(-1), outputs[0].log_softmax(-1), atol=1e-4)
    ):
        raise ConfigError(
            f"{name}, the last layer in the order of the model's parts, does not give its logits: labels are "
            "read from the layer that does; give the labels, or use labels='optimised'"
        )


def _probabilities(model: nn.Module, images: Tensor, change: Mapping[str, Tensor], steps: int) -> Tensor:
    """Return (classes,) mean probabilities, over images and over the path of the steps."""
    points = min(steps, _POINTS) if change else 1
    weights, means = dict(model.named_parameters()), []
    for point in range(points):
        passed = point * (steps - 1) / (max(points - 1, 1) * steps)  # share of the path
        moved = {name: weights[name] - passed * each for name, each in change.items() if name in weights}
        means.append(functional_call(model, moved, (images,)).softmax(1).mean(0))
    return torch.stack(means).mean(0)


def stand_ins(shape: tuple[int, int, int], count: int, generator: torch.Generator) -> Tensor:
    """Draw smooth noise of several scales, mostly grey like photographs. -> (count, C, H, W) in [0, 1].

    For an untrained ResNet-20 and batches of 32 of CIFAR-10 it finds 99% of labels; white noise finds 93%.
    """
    channels, *sides = shape
    images = []
    for index in range(count):
        coarse = _COARSE[index % len(_COARSE)]
        grey, colour = (
            torch.rand(1, number, coarse, coarse, generator=generator) for number in (1, channels)
        )
        mixed = _GREY * grey + (1 - _GREY) * colour
        images.append(functional.interpolate(mixed, size=sides, mode="bilinear"))
    return torch.cat(images)


def last_linear(model: nn.Module) -> tuple[str, nn.Linear]:
    """Return name and module of the layer that gives logits. Raises ConfigError if it is not linear."""
    name, last = next(reversed(layers_of(model)), ("", None))
    if not isinstance(last, nn.Linear):
        kind = "without parameters" if last is None else type(last).__name__
        raise ConfigError(
            f"the last layer of this model is {kind}: labels are read from the gradient of a last nn.Linear; "
            "give the labels, or use labels='optimised'"
        )
    return name, last
