"""Prototypes: a class is the mean of its support embeddings, a query the class whose prototype is nearest.

Source: Snell, Swersky & Zemel 2017, Sec. 2; Parnami et al. 2022, Eq. (2) and (3), with the squared distance.
"""

import torch
from torch import Tensor


def prototypes(support: Tensor, weights: Tensor | None = None) -> Tensor:
    """The mean of the support of each class. (..., K, D) -> (..., D).

    Args:
        support: embeddings.
        weights: (..., K) above 0; None for equal ones. With weights 1 / variance, the mean is the one of
            least variance among all that are right on average (Aitken 1936): support images that were
            protected more strongly count less.
    """
    if weights is None:
        return support.mean(-2)
    shares = weights / weights.sum(-1, keepdim=True)
    return (shares[..., None] * support).sum(-2)


def prototype_logits(queries: Tensor, prototypes: Tensor) -> Tensor:
    """Minus the squared Euclidean distances. (..., Q, D) queries, (..., N, D) prototypes -> (..., Q, N).

    Source: Snell et al. 2017, Eq. (2); Parnami et al. 2022, Eq. (3).
    """
    cross = queries @ prototypes.mT
    return 2 * cross - queries.square().sum(-1, keepdim=True) - prototypes.square().sum(-1)[..., None, :]


def episode_accuracies(
    embeddings: Tensor, places: Tensor, *, shot: int, weights: Tensor | None = None
) -> Tensor:
    """Accuracy of each episode. (n, D) embeddings, (E, N, K + Q) places among them -> (E,).

    The first `shot` places of each class are its support, the rest its queries.

    Args:
        embeddings, places, shot: see above.
        weights: (n,) of each embedding in a prototype; None for equal ones.
    """
    way = places.shape[1]
    scores = []
    for part in places.split(64):
        vectors = embeddings[part]  # (e, N, K + Q, D)
        support = part[:, :, :shot]
        means = prototypes(vectors[:, :, :shot], None if weights is None else weights[support])  # (e, N, D)
        logits = prototype_logits(vectors[:, :, shot:].flatten(1, 2), means)  # (e, N * Q, N)
        guesses = logits.argmax(-1).unflatten(1, (way, -1))  # (e, N, Q)
        scores.append((guesses == torch.arange(way)[:, None]).float().mean((1, 2)))
    return torch.cat(scores)
