"""CAFE: images rebuilt from the gradients of vertical federated learning.

Source: Jin, Chen, Hsu, Yu & Chen 2021, "CAFE: Catastrophic data leakage in vertical federated learning", Sec.
3, Algorithm 2. Each worker holds a part of every image and a local network; a server joins the networks'
outputs, and its head begins with a linear layer. It selects the rows of each batch, and so knows them. Steps:
I. each image's gradient by the outputs of that layer, from gradients of its bias; II. the inputs of that
layer, from gradients of its weights; III. the parts of the images, from these inputs.

I and II are linear, and solved here by least squares; the paper approximates them by gradient descent. Its
III also matches the gradients of all layers, which adds nothing to exact inputs if a local network has at
least as many outputs as its part has numbers.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from sfumato.attack.exact import check_layer, first_linear
from sfumato.errors import ConfigError, DataError

_GREY = 0.5
_LEAST = 1e-12

# A worker's network, parts -> (N, outputs), without batch norm in training mode; the (C, h, w) of its part.
Part = tuple[nn.Module, tuple[int, int, int]]
# (B,) the images of a batch, counted from 0; the gradients of its MEAN loss by parameters of the head.
Observation = tuple[Tensor, Mapping[str, Tensor]]


def recover(
    parts: Sequence[Part],
    head: nn.Module,
    observed: Sequence[Observation],
    *,
    total_variation: float = 3e-3,
    learning_rate: float = 0.1,
    steps: int = 1000,
) -> list[Tensor]:
    """Rebuild every worker's part of every image. -> for each, (N, C, h, w) float32 in [0, 1].

    Deterministic: all guesses start grey and are optimised together. `parts` are in the order in which the
    server joins their outputs; between the `observed` batches no parameter changed. `total_variation` weighs
    mean |dx| + mean |dy| against the squared distance of outputs, in units of their variance from image to
    image. Adam's rate falls along a cosine. Raises ConfigError if the head does not begin with a linear layer
    with a bias that fits the networks' outputs, and DataError as `local_outputs`.
    """
    _, first = first_linear(head)
    with torch.no_grad():
        blank = [network(torch.full((1, *shape), _GREY)).flatten(1).shape[1] for network, shape in parts]
    if sum(blank) != first.in_features:
        raise ConfigError(
            f"the networks give {' + '.join(map(str, blank))} numbers, and the head takes "
            f"{first.in_features}: give all parts, in the order in which they are joined"
        )
    images = []
    outputs = local_outputs(head, observed).float().split(blank, dim=1)
    for (network, shape), wanted in zip(parts, outputs, strict=True):
        guess = torch.full((len(wanted), *shape), _GREY, device=wanted.device).requires_grad_()
        optimiser = torch.optim.Adam([guess], lr=learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        variance = wanted.var(0, correction=0).mean().clamp(min=_LEAST)
        for _ in range(steps):
            apart = (network(guess).flatten(1) - wanted).square().mean(1) / variance  # (N,)
            rough = guess.diff(dim=-1).abs().mean((1, 2, 3)) + guess.diff(dim=-2).abs().mean((1, 2, 3))
            # A sum, not a mean: the step of an image does not depend on their number.
            (guess.grad,) = torch.autograd.grad((apart + total_variation * rough).sum(), [guess])
            optimiser.step()
            schedule.step()
            guess.detach().clamp_(0, 1)
        images.append(guess.detach().cpu())
    return images


def local_outputs(head: nn.Module, observed: Sequence[Observation]) -> Tensor:
    """Recover the joined outputs of the local networks for every image: steps I and II. -> (N, D) float64.

    Guarantees: exact up to rounding, with as many linearly independent batches as images. Raises DataError
    for gradients that do not fit the head, too few different batches, and an image that leaves no trace.
    """
    name, first = first_linear(head)
    gradients = [check_layer(shared, name, first) for _, shared in observed]  # (O, D) and (O,) of each
    if not all(len(indices) and int(indices.min()) >= 0 for indices, _ in observed):
        raise DataError("a batch has no indices, or some below 0: images are counted from 0")
    images = 1 + max((int(indices.max()) for indices, _ in observed), default=0)
    # (T, N), the share of each image in the mean over each batch
    shares = [indices.bincount(minlength=images).double() / len(indices) for indices, _ in observed]
    present = torch.stack(shares) if shares else torch.zeros(1, images)
    rank = int(torch.linalg.matrix_rank(present))
    if rank < images:
        raise DataError(
            f"{len(observed)} batches of {images} images, {rank} of them independent: {images} are needed, "
            f"observe at least {images - rank} more that mix the images otherwise; count images from 0"
        )
    weights, biases = map(torch.stack, zip(*gradients, strict=True))  # (T, O, D), (T, O)
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
    return torch.einsum("nto,tod->nd", inverse, weights)
