"""Prototypes: a class is the mean of its support embeddings, a query the class with the nearest prototype.

Source: Snell, Swersky & Zemel 2017, Sec. 2 and Eq. (2); Parnami et al. 2022, Eq. (2) and (3), with the
squared distance.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sfumato.episodes import Shape


def prototype_logits(queries: Tensor, prototypes: Tensor) -> Tensor:
    """Minus the squared Euclidean distances. (..., Q, D) queries, (..., N, D) prototypes -> (..., Q, N)."""
    own, others = queries.square().sum(-1, keepdim=True), prototypes.square().sum(-1)[..., None, :]
    return 2 * (queries @ prototypes.mT) - own - others


def prototypical_loss(embeddings: Tensor, shape: Shape, scale: Tensor | float = 1.0) -> Tensor:
    """The mean negative log-likelihood of the queries of one episode, by the prototypes of its support.

    `embeddings`: (N * (K + Q), D), class by class, support before queries; `scale`: of squared distances.
    """
    by_class = embeddings.unflatten(0, (shape.way, -1))  # (N, K + Q, D)
    means = by_class[:, : shape.shot].mean(1)  # (N, D)
    logits = prototype_logits(by_class[:, shape.shot :].flatten(0, 1), means) * scale  # (N * Q, N)
    labels = torch.arange(shape.way, device=logits.device).repeat_interleave(shape.queries)
    return functional.cross_entropy(logits, labels)


def episode_accuracies(embeddings: Tensor, places: Tensor, *, shot: int) -> Tensor:
    """Accuracy of each episode. (n, D) embeddings, (E, N, K + Q) indices of them -> (E,).

    Fast, for training; a study states the results of gallery.answers_of_episodes. The first `shot` indices of
    a class are its support. The first of ties is taken, as often right as another: classes are equally large.
    """
    way = places.shape[1]
    hits = []
    for part in places.split(64):
        vectors = embeddings[part]  # (e, N, K + Q, D)
        means = vectors[:, :, :shot].mean(2)  # (e, N, D)
        logits = prototype_logits(vectors[:, :, shot:].flatten(1, 2), means)  # (e, N * Q, N)
        hits.append((logits.unflatten(1, (way, -1)).argmax(-1) == torch.arange(way)[:, None]).float())
    return torch.cat(hits).mean((1, 2))


@dataclass(frozen=True)
class Accuracy:
    """Mean accuracy over test episodes with its 95% interval, mean +- half_width.

    The interval covers the draw of the episodes, not the training: another seed may lie outside it.
    """

    mean: float
    half_width: float
    episodes: int
    shape: Shape
    spec: str
    # Mean and half_width over queries of every second test image, and of the others, if they are known.
    halves: tuple[tuple[float, float], tuple[float, float]] | None = None
    # The same of the share of queries that a service names correctly, and does not refuse; if it refuses any.
    accepted: tuple[float, float] | None = None
    right: Tensor | None = field(default=None, compare=False, repr=False)  # (2, M) right and asked, by image

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.half_width

    @property
    def chance(self) -> float:
        """The accuracy of guessing."""
        return 1 / self.shape.way

    @classmethod
    def over(cls, scores: Tensor, shape: Shape, spec: str) -> "Accuracy":
        """The accuracy over the (E,) scores of test episodes."""
        return cls(*_mean(scores), len(scores), shape, spec)

    @classmethod
    def of_answers(
        cls, answers: tuple[np.ndarray, np.ndarray | None], images: Tensor, shape: Shape, spec: str
    ) -> "Accuracy":
        """The accuracy of the result of answers_of_episodes, for these queries: (E, N, Q) int64."""
        hits = torch.from_numpy(answers[0]).float()
        accepted = None if answers[1] is None else _mean((hits * torch.from_numpy(answers[1])).mean((1, 2)))
        both = torch.stack([images.flatten().bincount(part) for part in (hits.double().flatten(), None)])
        first = (images % 2 == 0).float()
        own = [(hits * half).sum((1, 2)) / half.sum((1, 2)) for half in (first, 1 - first)]
        halves = (_mean(own[0][own[0].isfinite()]), _mean(own[1][own[1].isfinite()]))
        every = cls.over(hits.mean((1, 2)), shape, spec)
        return replace(every, halves=halves, accepted=accepted, right=both)

    def __str__(self) -> str:
        return (
            f"{100 * self.mean:.1f}% +- {100 * self.half_width:.1f} "
            f"({self.shape}, {self.episodes} episodes, {self.spec})"
        )


def _mean(scores: Tensor) -> tuple[float, float]:
    """The mean of (E,) scores, and half of its 95% interval."""
    half_width = 1.96 * scores.std().item() / math.sqrt(len(scores)) if len(scores) > 1 else math.inf
    return scores.mean().item(), half_width
