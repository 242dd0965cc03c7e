"""Prototypes: a class is the mean of its support embeddings, a query the class with the nearest prototype.

Source: Snell, Swersky & Zemel 2017, Sec. 2; Parnami et al. 2022, Eq. (2) and (3), with the squared distance.
"""

import torch
from torch import Tensor


def prototypes(support: Tensor) -> Tensor:
    """The mean of the support embeddings of each class. (..., K, D) -> (..., D)."""
    return support.mean(-2)


def support_weights(embeddings: Tensor, codes: Tensor, groups: Tensor) -> Tensor:
    """The best weight of an embedding of each group in a prototype. -> (G,), with a mean of 1.

    It assumes that an embedding in group g is s_g·z + e, z the prototype of its class about the mean of all,
    e an error of variance v_g: an encoder draws whatever it cannot read towards the middle. Among all
    weighted means, weights s_g / v_g then carry z with the least relative error (least squares, Aitken 1936).

    Args:
        embeddings: (n, D), of known classes; some have two or more in each group.
        codes: (n,) int64 class of each.
        groups: (n,) int64 group of each, all from 0 to G - 1 among them.
    """
    classes, places = codes.unique(return_inverse=True)
    about = embeddings - embeddings.mean(0)
    weights = []
    for group in range(int(groups.max()) + 1):
        rows = groups == group
        x, own = about[rows], places[rows]
        counts = own.bincount(minlength=len(classes)).clamp(min=1)
        sums = torch.zeros(len(classes), x.shape[1]).index_add(0, own, x)
        squares, together = x.square().sum(), sums.square().sum(1)
        # Two images of one class have independent errors: the mean of their products is s^2 |z|^2.
        signal = (together.sum() - squares) / (counts * (counts - 1)).sum()
        variance = (squares - (together / counts).sum()) / (counts - 1).sum()
        # A group that says nothing about its classes weighs next to nothing, and never less.
        weights.append(signal.clamp(min=_LEAST).sqrt() / variance.clamp(min=_LEAST))
    found = torch.stack(weights)
    found = found.where(found.isfinite(), found.nanmean())  # a group without two images of any class
    return found / found.mean()


_LEAST = 1e-6


def prototype_logits(queries: Tensor, prototypes: Tensor) -> Tensor:
    """Minus the squared Euclidean distances. (..., Q, D) queries, (..., N, D) prototypes -> (..., Q, N).

    Source: Snell et al. 2017, Eq. (2); Parnami et al. 2022, Eq. (3).
    """
    squares = prototypes.square().sum(-1)
    cross = queries @ prototypes.mT
    return 2 * cross - queries.square().sum(-1, keepdim=True) - squares[..., None, :]


def episode_accuracies(embeddings: Tensor, places: Tensor, *, shot: int) -> Tensor:
    """Accuracy of each episode. -> (E,). For arguments see episode_hits."""
    return episode_hits(embeddings, places, shot=shot).mean((1, 2))


def episode_hits(embeddings: Tensor, places: Tensor, *, shot: int) -> Tensor:
    """Which queries are right. (n, D) embeddings, (E, N, K + Q) indices of them -> (E, N, Q), 0 or 1.

    Fast, for many episodes in training. A study states the results of gallery.answers_of_episodes. The
    first `shot` indices of each class are its support, the rest its queries. The first of ties is taken,
    which is as often right as another: all classes of an episode have as many queries.
    """
    way = places.shape[1]
    hits = []
    for part in places.split(64):
        vectors = embeddings[part]  # (e, N, K + Q, D)
        means = prototypes(vectors[:, :, :shot])  # (e, N, D)
        logits = prototype_logits(vectors[:, :, shot:].flatten(1, 2), means)  # (e, N * Q, N)
        hits.append((logits.unflatten(1, (way, -1)).argmax(-1) == torch.arange(way)[:, None]).float())
    return torch.cat(hits)
