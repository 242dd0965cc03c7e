"""Logistic regression on the outputs of a frozen encoder: the linear layer of a classifier."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

STRENGTHS = (10.0, 1.0, 0.1, 0.01, 1e-3)  # of the L2 penalty, on features of variance 1

_HELD_OUT = 5  # one of this many images chooses, without validation images
_STEPS = 200


def logistic_regression(
    features: Sequence[Tensor],
    codes: Tensor,
    classes: int,
    validation: tuple[Tensor, Tensor] | None = None,
    *,
    seed: int = 0,
) -> tuple[Tensor, Tensor, float]:
    """Fits a linear layer, with the L2 penalty of STRENGTHS that is best on other images.

    Every class has the same weight, for any number of images.

    Args:
        features: (N, D) of the N training images, once for each variant of them.
        codes, classes: (N,) class of each, and their number.
        validation: (M, D) features of other images, and their codes; None for a fifth of the training
            images, drawn by `seed`; they choose the strength, and are then trained on as well.

    Returns:
        weights (classes, D) and biases (classes,), and the share of the other images that is named correctly.
    """
    rows = torch.randperm(len(codes), generator=torch.Generator().manual_seed(seed))
    held_out = rows[: len(rows) // _HELD_OUT] if validation is None else rows[:0]
    kept = rows[len(held_out) :]
    others, answers = (features[0][held_out], codes[held_out]) if validation is None else validation

    def fit_at(chosen: Tensor, strength: float) -> tuple[Tensor, Tensor]:
        every = torch.cat([part[chosen] for part in features])
        return _fit(every, codes[chosen].repeat(len(features)), classes, strength)

    best, accuracy = STRENGTHS[0], -1.0
    for strength in STRENGTHS:
        weights, biases = fit_at(kept, strength)
        right = (others @ weights.T + biases).argmax(1) == answers
        if (share := right.double().mean().item() if len(right) else 0.0) > accuracy:
            best, accuracy = strength, share
    return *fit_at(rows, best), accuracy


def _fit(features: Tensor, codes: Tensor, classes: int, strength: float) -> tuple[Tensor, Tensor]:
    """By L-BFGS, in float64. The penalty, strength / 2 times the squared weights, adds to the mean loss."""
    x = features.double()
    weights = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    biases = torch.zeros(classes, dtype=x.dtype, requires_grad=True)
    counts = codes.bincount(minlength=classes).double()
    shares = torch.where(counts > 0, len(codes) / ((counts > 0).sum() * counts.clamp(min=1)), 0.0)
    optimiser = torch.optim.LBFGS(
        [weights, biases], max_iter=_STEPS, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        losses = functional.cross_entropy(x @ weights.T + biases, codes, reduction="none")
        loss = (losses * shares[codes]).mean() + strength / 2 * weights.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return weights.detach().float(), biases.detach().float()
