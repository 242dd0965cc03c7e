"""Match reconstructions to originals, for attacks that return a batch in any order."""

import torch
from torch import Tensor

from sfumato.errors import ConfigError, DataError, needs_extra


def match(originals: Tensor, reconstructions: Tensor) -> Tensor:
    """Find the order of the reconstructions that fits the originals best. -> (N,) int64.

    Source: Kuhn 1955, on the mean squared error of all pairs, as Huang et al. 2021 judge gradient inversion
    of
    batches: `reconstructions[match(originals, reconstructions)]` has the least mean squared error to
    `originals` of all orders. No adversary knows that order; it is for judging only.

    Args:
        originals, reconstructions: (N, C, H, W), both uint8 or both float.

    Raises:
        ConfigError: the shapes differ.
        DataError: a reconstruction is not finite.
    """
    with needs_extra("matching reconstructions", "study"):
        from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    if originals.shape != reconstructions.shape or originals.ndim != 4:
        raise ConfigError(
            "matching needs as many reconstructions as originals, all (N, C, H, W), got "
            f"{tuple(originals.shape)} and {tuple(reconstructions.shape)}"
        )
    known, guessed = originals.flatten(1).double(), reconstructions.flatten(1).double()
    finite = (known.isfinite() & guessed.isfinite()).all(1)
    if not bool(finite.all()):
        raise DataError(
            f"image {int((~finite).nonzero()[0])} is not finite: replace diverged images, such as by grey, "
            "before matching"
        )
    # |a - b|² = |a|² + |b|² - 2ab, and the squares add up to the same in every order.
    _, order = linear_sum_assignment((-known @ guessed.T).numpy())
    return torch.from_numpy(order)
