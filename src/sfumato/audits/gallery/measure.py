"""Galleries drawn from photographs that are at hand, each attacked by all the others."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.attack.membership import (
    TABLE,
    VIEWS,
    Galleries,
    accuracy,
    draw_galleries,
    person_scores,
    photograph_scores,
    prototypes_of,
    ratios,
)
from sfumato.dp.private_mean import noisy_means
from sfumato.errors import ConfigError

Estimate = Callable[[Tensor], Tensor]
"""(P, D) means of the shots of each class -> the prototypes that answers are made of."""

_HALF = 0.5  # of the people are enrolled, where that is the question


@dataclass(frozen=True, kw_only=True)
class GalleryAuditConfig:
    """What is enrolled, and how hard is looked.

    Attributes:
        shot: K, photographs that are enrolled of each class.
        photographs: n, of each class at hand; who has fewer is left out.
        known: q of these are never enrolled where it is asked who is in the gallery at all.
        people: at most so many classes.
        galleries: G, how many are drawn; each is attacked with the others as its shadows.
        attacked: how many of them are attacked.
        step: to which the probabilities of a service with `--confidence rounded` are rounded.
        epsilons, delta: of noise on prototypes, for the replacement of one shot.
        seed: of the people, of what is enrolled, and of the noise.
    """

    shot: int = 5
    photographs: int = 8
    known: int = 3
    people: int = 100
    galleries: int = 64
    attacked: int = 8
    step: float = 0.1
    epsilons: tuple[float, ...] = (4.0, 16.0, 64.0)
    delta: float = 1e-5
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("shot", 1), ("known", 1), ("people", 4), ("attacked", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)}: at least {least}")
        if self.shot >= self.photographs or self.shot > self.photographs - self.known:
            raise ConfigError(
                f"shot={self.shot} and known={self.known} of photographs={self.photographs}: a class needs "
                "photographs beside its shots, and known ones that are never enrolled; lower shot or known, "
                "or raise photographs"
            )
        if self.galleries < self.attacked + 4:
            raise ConfigError(
                f"galleries={self.galleries}: at least 4 more than the {self.attacked} that are attacked"
            )
        if not all(0 < epsilon < math.inf for epsilon in self.epsilons) or not 0 < self.delta < 1:
            raise ConfigError(f"epsilons={self.epsilons}, delta={self.delta:g}: above 0, and delta below 1")


@dataclass(frozen=True)
class Embedded:
    """Embeddings of n photographs of P people.

    Attributes:
        asked: (P, n, D), as they are asked about.
        enrolled: (R, P, n, D), as they were enrolled, in R releases of each: the noise of a protection is
            not that of the question. Equal to `asked`, with R = 1, where a protection has none.
    """

    asked: Tensor
    enrolled: Tensor


@dataclass(frozen=True)
class Measured:
    """What one draw of galleries gave.

    Attributes:
        accuracy: of the gallery, on photographs that are not enrolled.
        found: (question, view) -> the log-likelihood ratios of what was asked, and who was a member; the
            questions are "photograph" (was it a shot?) and "person" (are they enrolled at all?).
    """

    accuracy: float
    found: dict[tuple[str, str], tuple[Tensor, Tensor]]


def measure(
    embedded: Embedded,
    config: GalleryAuditConfig,
    *,
    noise: tuple[float, float] | None = None,
    estimate: Estimate | None = None,
    table: bool = False,
) -> Measured:
    """Draw galleries, and attack some of them.

    Args:
        embedded: the photographs.
        config: see GalleryAuditConfig; `people` and `photographs` are those of `embedded` here.
        noise: the clipping norm and the standard deviation of noise on prototypes. With it the views are
            "stored" and "full", which noise is against.
        estimate: for codes; None: the prototypes are means.
        table: whether devices are given the answers to all codes.
    """
    people, photographs = embedded.asked.shape[:2]
    views = (*VIEWS, *([TABLE] if table else [])) if noise is None else ("stored", "full")
    draw = torch.Generator().manual_seed(config.seed)
    drawn = draw_galleries(
        people=people, photographs=photographs, shot=config.shot, galleries=config.galleries, draw=draw
    )
    enrollable = photographs - config.known
    half = draw_galleries(
        people=people,
        photographs=enrollable,
        shot=config.shot,
        galleries=config.galleries,
        enrolled=_HALF,
        draw=draw,
    )
    means = _means(embedded.enrolled, drawn, noise, 1000 + config.seed)
    answering = _answering(means, drawn, estimate)
    found = {}
    inside = drawn.photographs(photographs).flatten(1, 2)
    for view in views:
        seen = means if view == "stored" else answering
        scores = photograph_scores(embedded.asked, seen, drawn.enrolled, view=view, step=config.step)
        found["photograph", view] = ratios(scores.flatten(1, 2), inside, attacked=config.attacked)
    right = accuracy(embedded.asked, answering, drawn)
    means = _means(embedded.enrolled[:, :, :enrollable], half, noise, 1100 + config.seed)
    answering = _answering(means, half, estimate)
    for view in views:
        seen = means if view == "stored" else answering
        known = embedded.asked[:, enrollable:]
        scores = person_scores(known, seen, half.enrolled, view=view, step=config.step)
        found["person", view] = ratios(scores, half.enrolled, attacked=config.attacked)
    return Measured(right, found)


def _means(enrolled: Tensor, drawn: Galleries, noise: tuple[float, float] | None, seed: int) -> Tensor:
    """(G, P, D), each gallery of its own release."""
    people = torch.arange(enrolled.shape[1])[None, :, None]
    if noise is not None:
        releases = (torch.arange(len(drawn.shots)) % len(enrolled))[:, None, None]
        norm, sigma = noise
        draw = torch.Generator().manual_seed(seed)
        return noisy_means(
            enrolled[releases, people, drawn.shots], clipping_norm=norm, sigma=sigma, draw=draw
        )
    parts = torch.empty(*drawn.enrolled.shape, enrolled.shape[-1], dtype=enrolled.dtype)
    for number, release in enumerate(enrolled):
        rows = slice(number, None, len(enrolled))
        parts[rows] = prototypes_of(release, Galleries(drawn.shots[rows], drawn.enrolled[rows]))
    return parts


def _answering(means: Tensor, drawn: Galleries, estimate: Estimate | None) -> Tensor:
    """The prototypes of answers: of each gallery by itself, of those who are enrolled in it."""
    if estimate is None:
        return means
    prototypes = means.clone()
    for gallery, enrolled in enumerate(drawn.enrolled):
        prototypes[gallery, enrolled] = estimate(means[gallery, enrolled])
    return prototypes
