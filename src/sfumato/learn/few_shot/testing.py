"""The accuracy of a few-shot model on new classes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler, Shape
from sfumato.learn.few_shot import mixed
from sfumato.learn.few_shot.model import FewShotModel
from sfumato.learn.gallery import answers_of_episodes
from sfumato.learn.refusal import Refusal
from sfumato.protect import Protection


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
        cls,
        answers: tuple[np.ndarray, np.ndarray | None],
        images: Tensor,
        shape: Shape,
        spec: str,
    ) -> "Accuracy":
        """The accuracy of the result of answers_of_episodes, for these queries: (E, N, Q) int64."""
        hits = torch.from_numpy(answers[0]).float()
        accepted = None
        if answers[1] is not None:
            accepted = _mean((hits * torch.from_numpy(answers[1])).mean((1, 2)))
        first = (images % 2 == 0).float()
        own = [(hits * half).sum((1, 2)) / half.sum((1, 2)) for half in (first, 1 - first)]
        halves = (_mean(own[0][own[0].isfinite()]), _mean(own[1][own[1].isfinite()]))
        return replace(cls.over(hits.mean((1, 2)), shape, spec), halves=halves, accepted=accepted)

    def __str__(self) -> str:
        return (
            f"{100 * self.mean:.1f}% +- {100 * self.half_width:.1f} "
            f"({self.shape}, {self.episodes} episodes, {self.spec})"
        )


def _mean(scores: Tensor) -> tuple[float, float]:
    """The mean of (E,) scores, and half of its 95% interval."""
    count = len(scores)
    half_width = 1.96 * scores.std().item() / math.sqrt(count) if count > 1 else math.inf
    return scores.mean().item(), half_width


def evaluate(
    model: FewShotModel,
    data: LabelledImages,
    *,
    way: int,
    shot: int,
    queries: int = 15,
    episodes: int = 600,
    target: str = "class",
    protection: Protection | Sequence[Protection] | None = None,
    weighted: bool = True,
    seed: int = 0,
) -> Accuracy:
    """Mean accuracy over test episodes, on images protected once each.

    A device releases an image once, for any number of episodes: only images that an episode draws are
    protected and embedded.

    Args:
        model: from `train` or `load`.
        data: clean images of new classes.
        way, shot, queries, episodes, target: the test.
        protection: None for that of the training. With several, each image has one of them, at
            random, as if devices chose for themselves.
        weighted: whether support images count by `FewShotModel.weight` of their protection, which needs
            nothing from devices; or all alike. With one protection it is the same.
        seed: of the episodes and of the noise. The episodes do not depend on the model or the protection,
            so models are compared on the same ones.

    Raises:
        DataError: too few classes or images for an episode.
    """
    if protection is None:
        protection = model.conditions.protections
    protections = list(protection) if isinstance(protection, Sequence) else [protection]
    sampler = Sampler(data.label(target), Shape(way=way, shot=shot, queries=queries))
    generator = torch.Generator().manual_seed(seed)
    drawn, rows = sampler.draw(episodes, generator).unique(return_inverse=True)
    which = mixed.choose(len(drawn), len(protections), generator)
    released = mixed.release(data.images[drawn], protections, which, seeded_noise(seed))
    embeddings = mixed.embed(model, released, protections, which)
    weights = None
    if weighted and len(protections) > 1:
        weights = torch.tensor([model.weight(protection) for protection in protections])[which].numpy()
    refusal = Refusal.of_card(model.card.get("refusal"))
    answers = answers_of_episodes(
        embeddings.numpy(), rows.numpy(), shot=shot, weights=weights, refusal=refusal
    )
    specs = ", ".join(protection.spec for protection in protections)
    return Accuracy.of_answers(answers, drawn[rows][:, :, shot:], sampler.shape, specs)
