"""The privacy losses of a private feature: three ways to hide the identity."""

import torch
from torch import Tensor


def privacy_loss(features: Tensor, identities: Tensor, *, beta: float, sigma: float) -> Tensor:
    """β / (2σN²) · [Σ_{y_i≠y_j} |f_i - f_j|² + Σ_{y_i=y_j} (c - |f_i - f_j|²)], over pairs of a batch.

    Source: Osia et al. 2018, Eq. (7), second term, with i and j in both orders, as the paper's U2 in Eq. (5)
    has them, and i ≠ j. Its B.3 is an identity with each pair once: β here is half of β there. c =
    2dN(N - 1) / k, k the number of pairs of one identity (Appendix B.4): it has no gradient, and makes both
    sums estimates of the same.

    Promises: its gradient pulls images of different identities together, and pushes images of one apart.

    Args:
        features: (N, d), of variance 1.
        identities: (N,).
        beta: β.
        sigma: σ, the variance of the kernels.
    """
    count, dimension = features.shape
    # Of differences: |f|² + |g|² - 2fg would lose the digits of near features, which matter for the loss.
    squares = (features[:, None] - features[None]).square().sum(2)  # (N, N), 0 for i = j
    same = identities[:, None] == identities[None]
    pairs = same.sum() - count
    total = torch.where(same, -squares, squares).sum()
    constant = torch.where(pairs > 0, 2.0 * dimension * count * (count - 1), 0.0)  # c·k
    return beta / (2 * sigma * count**2) * (total + constant)


def silverman(count: int, dimension: int) -> float:
    """σ of Eq. (7): the variance of Gaussian kernels for N features of variance 1, by Silverman's rule."""
    return float((4 / (count * (dimension + 2))) ** (2 / (dimension + 4)))


def information_bound(log_posteriors: Tensor, identities: Tensor) -> Tensor:
    """1/N Σ_i [ln q(y_i|f_i) - 1/N Σ_j ln q(y_j|f_i)], in nats: CLUB, of feature and identity.

    Source: Cheng et al. 2020, "CLUB: a contrastive log-ratio upper bound of mutual information", Eq. (14).
    An upper bound if q is the true posterior, and an estimate if it was learned.

    Args:
        log_posteriors: (N, c), ln q of each identity.
        identities: (N,).
    """
    right = log_posteriors.gather(1, identities[:, None])[:, 0]
    return (right - log_posteriors[:, identities].mean(1)).mean()


def reverse_gradient(features: Tensor, beta: float) -> Tensor:
    """The same numbers, with their gradient multiplied by -β. Ganin & Lempitsky 2015, Eq. (13)."""
    return features.detach() * (1 + beta) - beta * features
