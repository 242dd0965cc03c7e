"""The privacy losses of a private feature: four ways to hide the identity."""

import math

import torch
from torch import Tensor
from torch.nn import functional


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


def log_rank_loss(
    features: Tensor, identities: Tensor, *, beta: float, sigma: float, temperature: float = 1.0
) -> Tensor:
    """-β · E[ln r] / ln c: log-rank privacy within a batch, with steps of the rank made smooth.

    Source: Osia et al. 2018, Definition 10, as Sec. 7 proposes it for training. p(y|f) is the kernel density
    of the other images of the batch, of c identities; r = 1 + Σ_y sigmoid((ln p(y|f) - ln p(y_i|f)) /
    temperature), over the other identities. Images without another of their identity have no rank.

    Promises: at a temperature near 0 it is exact log-rank privacy, if no two identities are equally likely.

    Args:
        features: (N, d), of variance 1.
        identities: (N,).
        beta: β.
        sigma: σ, the variance of the kernels.
        temperature: of the sigmoid, in nats.
    """
    columns, codes = identities.unique(return_inverse=True)
    squares = (features[:, None] - features[None]).square().sum(2)  # (N, N)
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
    of = functional.one_hot(codes, len(columns)).bool()[None] & ~itself[..., None]  # (N, N, c)
    logs = torch.where(of, -squares[..., None] / (2 * sigma), -math.inf).logsumexp(1)
    logs = logs - of.sum(1).clamp(min=1).log()  # (N, c)
    ranked = of.sum(1).gather(1, codes[:, None])[:, 0] > 0
    above = (logs[ranked] - logs[ranked].gather(1, codes[ranked, None])) / temperature
    # One half is the right identity's own, which is not above itself.
    ranks = 0.5 + above.sigmoid().sum(1)
    return -beta * ranks.log().sum() / max(1, int(ranked.sum())) / math.log(max(2, len(columns)))


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
