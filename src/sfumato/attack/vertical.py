"""CAFE: images rebuilt from the gradients of vertical federated learning.

Source: Jin, Chen, Hsu, Yu & Chen 2021, "CAFE: Catastrophic data leakage in vertical federated learning", Sec.
3, Algorithm 2. Each worker holds a part of every image and a local network; a server joins the networks'
outputs, and its head begins with a linear layer. It selects the rows of each batch, and so knows them. Steps:

I. each image's gradient by the outputs of that layer, from gradients of its bias;
II. the inputs of that layer, from gradients of its weights;
III. the parts of the images, from these inputs.

I and II are linear, and solved here by least squares; the paper approximates them by gradient descent. Its
III also matches the gradients of all layers: that is omitted here, since exact inputs contain as much as such
gradients if a local network has at least as many outputs as its part has numbers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.attack.first_layer import check_layer, first_linear
from sfumato.errors import ConfigError, DataError

_GREY = 0.5
_LEAST = 1e-12


@dataclass(frozen=True, kw_only=True)
class VerticalConfig:
    """The search for parts, given the outputs of their networks.

    Attributes:
        total_variation: weight of mean |dx| + mean |dy| , against the squared distance of outputs, in
            units of their variance from image to image.
        learning_rate: of Adam at its start; it falls to 0 along a cosine.
        steps: of Adam.
    """

    total_variation: float = 3e-3
    learning_rate: float = 0.1
    steps: int = 1000

    def __post_init__(self) -> None:
        if not 0 <= self.total_variation < math.inf:
            raise ConfigError(f"total_variation={self.total_variation}: at least 0, its weight")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate}: above 0")
        if self.steps < 1:
            raise ConfigError(f"steps={self.steps}: at least 1")


@dataclass(frozen=True)
class Part:
    """One worker: the shape (C, h, w) of its part of an image, and its network, parts -> (N, outputs).

    The output for an image must not depend on the batch: eval mode, or no batch norm.
    """

    network: nn.Module
    shape: tuple[int, int, int]


@dataclass(frozen=True)
class Observation:
    """One batch seen by the server.

    Attributes:
        indices: (B,) int64, its images, counted from 0.
        gradients: maps a parameter of the head to its gradient of the MEAN loss of the batch; those of the
            first layer are used.
    """

    indices: Tensor
    gradients: Mapping[str, Tensor]


def recover(
    parts: Sequence[Part],
    head: nn.Module,
    observed: Sequence[Observation],
    config: VerticalConfig,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[Tensor]:
    """Rebuild every worker's part of every image. -> for each, (N, C, h, w) float32 in [0, 1].

    Deterministic: all guesses start grey and are optimised together.

    Args:
        parts: of each worker, in the order in which the server joins their outputs.
        head: joined outputs (N, D) -> logits; its first layer is linear with a bias.
        observed: batches between which no parameter changed.
        config: see VerticalConfig.
        progress: called after each step with the numbers done and planned, over all workers.

    Raises:
        ConfigError: the head begins differently, or does not fit the networks' outputs.
        DataError: see `local_outputs`.
    """
    _, first = first_linear(head)
    with torch.no_grad():
        blank = [part.network(torch.full((1, *part.shape), _GREY)).flatten(1).shape[1] for part in parts]
    if sum(blank) != first.in_features:
        raise ConfigError(
            f"the networks give {' + '.join(map(str, blank))} numbers, and the head takes "
            f"{first.in_features}: give all parts, in the order in which they are joined"
        )
    outputs = local_outputs(head, observed).float().split(blank, dim=1)
    images = []
    for number, (part, wanted) in enumerate(zip(parts, outputs, strict=True)):

        def count(step: int, number: int = number) -> None:
            if progress is not None:
                progress(number * config.steps + step, len(parts) * config.steps)

        images.append(_invert(part, wanted, config, count))
    return images


def local_outputs(head: nn.Module, observed: Sequence[Observation]) -> Tensor:
    """Recover the joined outputs of the local networks for every image: steps I and II. -> (N, D) float64.

    Guarantees: exact up to rounding, with as many linearly independent batches as images.

    Raises:
        ConfigError: the head does not begin with a linear layer with a bias.
        DataError: no batch; gradients that do not fit the head; indices below 0 or never seen; too few
            different batches; an image that leaves no trace.
    """
    name, first = first_linear(head)
    if not observed:
        raise DataError("no batch was observed: at least as many are needed as there are images")
    gradients = [check_layer(each.gradients, name, first) for each in observed]  # (O, D) and (O,) of each
    present = _incidence([each.indices for each in observed])  # (T, N)
    rank = int(torch.linalg.matrix_rank(present))
    images = present.shape[1]
    if rank < images:
        raise DataError(
            f"{len(observed)} batches of {images} images, {rank} of them independent: {images} are needed, "
            f"observe at least {images - rank} more that mix the images otherwise"
        )
    biases = torch.stack([bias for _, bias in gradients])  # (T, O)
    signals = torch.linalg.pinv(present) @ biases  # (N, O): V of the paper, by image
    lost = signals.norm(dim=1) <= _LEAST * signals.norm()
    if bool(lost.any()):
        raise DataError(
            f"image {int(lost.nonzero()[0])} leaves no trace in the gradients of {name}.bias: no unit of it "
            "passes the image on, so it cannot be recovered"
        )
    # dW of batch t is the sum over its images of signal times output: rows (t, o), unknowns by image.
    design = torch.einsum("tn,no->ton", present, signals)  # (T, O, N)
    inverse = torch.linalg.pinv(design.flatten(0, 1)).unflatten(1, design.shape[:2])  # (N, T, O)
    outputs = torch.zeros(images, first.in_features, dtype=torch.float64, device=biases.device)
    for batch, (weight, _) in enumerate(gradients):
        outputs += inverse[:, batch] @ weight
    return outputs


def _incidence(batches: Sequence[Tensor]) -> Tensor:
    """(T, N) float64: return the share of each image in the mean over each batch."""
    everything = torch.cat([indices.flatten() for indices in batches])
    if not all(each.numel() for each in batches) or int(everything.min()) < 0:
        raise DataError("a batch has no indices, or some below 0: images are counted from 0")
    images = int(everything.max()) + 1
    unseen = sorted(set(range(images)) - set(everything.tolist()))
    if unseen:
        raise DataError(
            f"{len(unseen)} of {images} images were in no batch, such as {unseen[0]}: count images from 0 "
            "without gaps"
        )
    return torch.stack([torch.bincount(each, minlength=images).double() / each.numel() for each in batches])


def _invert(part: Part, wanted: Tensor, config: VerticalConfig, count: Callable[[int], None]) -> Tensor:
    """Find the parts (N, C, h, w) for which a network gives (N, outputs)."""
    guess = torch.full((len(wanted), *part.shape), _GREY, device=wanted.device).requires_grad_()
    optimiser = torch.optim.Adam([guess], lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps)
    variance = wanted.var(0, correction=0).mean().clamp(min=_LEAST)  # from image to image
    for step in range(config.steps):
        apart = (part.network(guess).flatten(1) - wanted).square().mean(1) / variance  # (N,)
        rough = guess.diff(dim=-1).abs().mean((1, 2, 3)) + guess.diff(dim=-2).abs().mean((1, 2, 3))
        # A sum, not a mean: the step of an image does not depend on their number.
        (guess.grad,) = torch.autograd.grad((apart + config.total_variation * rough).sum(), [guess])
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            guess.clamp_(0, 1)
        count(step + 1)
    return guess.detach().cpu()
