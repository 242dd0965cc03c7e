"""Galleries drawn from available photographs, each attacked with all others as shadows."""

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
from sfumato.dp.clipping import clip_rows
from sfumato.errors import ConfigError

ToPrototypes = Callable[[Tensor], Tensor]
"""Maps (P, D) means of the shots of each class to the prototypes used for answers."""

_HALF = 0.5  # of the people are enrolled, for the question of enrolment


@dataclass(frozen=True, kw_only=True)
class GalleryAuditConfig:
    """The enrolment, and the effort of the audit.

    Attributes:
        shot: K, enrolled photographs of each class.
        photographs: n, available photographs of each class; people with fewer are left out.
        known: q, of these never enrolled, for the question of who is in the gallery.
        people: the most classes.
        galleries: G, the number drawn; each is attacked with the others as its shadows.
        attacked: the number of them attacked.
        step: the rounding of probabilities in a service with `--confidence rounded`.
        epsilons, delta: of noise on examples, for the replacement of one.
        seed: for the people, the enrolment and the noise.
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
                "photographs besides its shots, and known ones that are never enrolled; lower shot or known, "
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
        asked: (P, n, D), for queries.
        enrolled: (R, P, n, D), for enrolment, in R releases of each: a protection's noise in enrolment
            differs from that in queries. Equal to `asked`, with R = 1, if a protection has no noise.
    """

    asked: Tensor
    enrolled: Tensor


@dataclass(frozen=True)
class Measured:
    """The results of one draw of galleries.

    Attributes:
        accuracy: of the gallery, on photographs that are not enrolled.
        found: maps (question, view) to the log-likelihood ratios and the members; the questions are
            "photograph" (was it a shot?) and "person" (are they enrolled at all?).
    """

    accuracy: float
    found: dict[tuple[str, str], tuple[Tensor, Tensor]]


def measure(
    embedded: Embedded,
    config: GalleryAuditConfig,
    *,
    noise: tuple[float, float] | None = None,
    estimate: ToPrototypes | None = None,
    table: bool = False,
) -> Measured:
    """Draw galleries, and attack some of them.

    Args:
        embedded: the photographs.
        config: see GalleryAuditConfig; `people` and `photographs` are those of `embedded` here.
        noise: the clipping norm and the standard deviation of noise on each shot, as a service adds. With it
            the views are "stored" and "full", and a table that is made of them.
        estimate: for codes; None: the prototypes are means.
        table: whether devices get the answers to all codes.
    """
    people, photographs = embedded.asked.shape[:2]
    views = (*(VIEWS if noise is None else ("stored", "full")), *([TABLE] if table else []))
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
    """Compute prototypes (G, P, D), each gallery from its own release."""
    people = torch.arange(enrolled.shape[1])[None, :, None]
    if noise is not None:
        releases = (torch.arange(len(drawn.shots)) % len(enrolled))[:, None, None]
        norm, sigma = noise
        draw = torch.Generator().manual_seed(seed)
        shots = enrolled[releases, people, drawn.shots]
        clipped = clip_rows(shots.flatten(0, 2), clipping_norm=norm).view(shots.shape)
        return (clipped + sigma * torch.randn(shots.shape, dtype=shots.dtype, generator=draw)).mean(2)
    parts = torch.empty(*drawn.enrolled.shape, enrolled.shape[-1], dtype=enrolled.dtype)
    for number, release in enumerate(enrolled):
        rows = slice(number, None, len(enrolled))
        parts[rows] = prototypes_of(release, Galleries(drawn.shots[rows], drawn.enrolled[rows]))
    return parts


def _answering(means: Tensor, drawn: Galleries, estimate: ToPrototypes | None) -> Tensor:
    """Compute the prototypes for answers: in each gallery, of the people enrolled in it."""
    if estimate is None:
        return means
    prototypes = means.clone()
    for gallery, enrolled in enumerate(drawn.enrolled):
        prototypes[gallery, enrolled] = estimate(means[gallery, enrolled])
    return prototypes
