"""Membership in an enrolled gallery: was this photograph enrolled; was this person?

Source: Carlini et al. 2022 (arXiv:2112.03570), Sec. IV and VI: the online Gaussian likelihood ratio (LiRA),
with shadow galleries instead of shadow models; for few shots, arXiv:2402.06674, which finds them the worst
case. A shadow gallery enrols other shots of the same people, drawn like those of the attacked one: the
adversary has all photographs and the encoder, not which were enrolled. With fewer photographs they find less.

The adversary has one view. "stored" is the prototypes. "full" is an answer with its distance and its
probability; "rounded" only the probability, rounded to a step; "label" only the name of the class. Each
photograph is a query once, unchanged. For codes of bits TABLE is the labels of all codes near it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from sfumato.base.proportions import over_people
from sfumato.data.labelled import draw_rows
from sfumato.dp.naming.bound import lower_limit, upper_limit
from sfumato.errors import ConfigError, DataError, SpecError

VIEWS = ("stored", "full", "rounded", "label")
TABLE = "table"  # the labels of all codes, for look-ups on the device, see sfumato.wire.tables
_NEAR = 2  # the labels of codes that differ in at most this many bits are used
_FLOOR = 1e-6  # standard deviation of a score that never varies, in units of the spread of all


@dataclass(frozen=True)
class Galleries:
    """The enrolled photographs of G galleries."""

    shots: Tensor  # (G, P, K) int64, the photographs of each person
    enrolled: Tensor  # (G, P) bool, whether the person is in the gallery

    def photographs(self, count: int) -> Tensor:
        """Whether each of a person's first n photographs was a shot: (G, P, n) bool."""
        inside = torch.zeros(*self.enrolled.shape, count, dtype=torch.bool)
        return inside.scatter(2, self.shots, True) & self.enrolled[..., None]


def by_person(embeddings: Tensor, codes: Tensor, *, photographs: int, seed: int = 0) -> Tensor:
    """Draw n embeddings of each person with at least n, by a seed. (N, D), (N,) int64 -> (P, n, D)."""
    rows = [(codes == code).nonzero().flatten() for code in codes.unique()]
    able = [
        own[draw_rows(torch.zeros_like(own), photographs, seed=seed + int(own[0]))]
        for own in rows
        if len(own) >= photographs
    ]
    if len(able) < 2:
        raise DataError(
            f"{len(able)} people have {photographs} photographs; membership needs two: ask for fewer"
        )
    return embeddings[torch.stack(able)]


def draw_galleries(
    *, people: int, photographs: int, shot: int, galleries: int, enrolled: float = 1.0, draw: torch.Generator
) -> Galleries:
    """Draw G galleries of K <= n shots of each of P people; `enrolled` with that chance, two at least."""
    if not 1 <= shot <= photographs:
        raise ConfigError(f"shot={shot}: from 1 to the {photographs} photographs of a person")
    order = torch.rand(galleries, people, photographs, generator=draw).argsort(2)
    chances = torch.rand(galleries, people, generator=draw)
    least = chances.argsort(1).argsort(1) < 2  # the two smallest
    return Galleries(order[..., :shot], (chances < enrolled) | least)


def prototypes_of(embeddings: Tensor, galleries: Galleries) -> Tensor:
    """Average each person's shots. (P, n, D) -> (G, P, D)."""
    people = torch.arange(len(embeddings))[None, :, None]
    return embeddings[people, galleries.shots].mean(2)


def photograph_scores(
    photographs: Tensor, prototypes: Tensor, enrolled: Tensor, *, view: str, step: float = 0.1
) -> Tensor:
    """Score each photograph against the class of its person, in one view.

    (P, n, D) embeddings of the queries, codes of bits as 1 and -1; (G, P, D) prototypes; (G, P) bool, whom
    they enrol: the scores of others mean nothing. `step`: for "rounded", in (0, 1]. -> (G, P, n, S) float64.

    "stored": the distance, and the photograph's share of the prototype, about its person's mean; "full": the
    distance and the log-odds of the class; "rounded": the log-odds; "label": 1 if the class is named, else 0;
    TABLE: the shares of the codes that differ in 0, 1 and 2 bits and have the class.
    """
    _check(view, step)
    own, away = photographs.double(), prototypes.double()
    if view == TABLE:
        people = torch.arange(len(own))[:, None, None]
        return torch.stack([_shares(labels == people) for labels in _tables(own, away, enrolled)])
    distances = (own[None] - away[:, :, None]).norm(dim=-1)  # (G, P, n); 0 where they are equal
    if view == "stored":
        middle = own.mean(1, keepdim=True)
        direction = own - middle
        share = torch.einsum("pnd,gpd->gpn", direction, away - middle[:, 0])
        share = share / direction.square().sum(-1).clamp(min=1e-300)
        return torch.stack([distances, share], -1)
    logits = _logits(own, away, enrolled)  # (G, P, n, P)
    people = torch.arange(len(own))[None, :, None, None].expand(*logits.shape[:3], 1)
    if view == "label":
        return (logits.argmax(-1, keepdim=True) == people).double()
    odds = _log_odds(logits.softmax(-1).gather(-1, people), step if view == "rounded" else 0.0)
    return odds if view == "rounded" else torch.cat([distances[..., None], odds], -1)


def person_scores(
    known: Tensor, prototypes: Tensor, enrolled: Tensor, *, view: str, step: float = 0.1
) -> Tensor:
    """Score each person in one view, from q photographs of theirs that are not enrolled.

    The adversary does not know the person's class: labels are pseudonyms. -> (G, P, S) float64.
    "stored": the distance from the nearest prototype to the mean; "label": the share of photographs with the
    most frequent name; "rounded": the mean log-odds of the names, and that share; "full": the mean distance
    of the nearest classes, and both; TABLE: the shares of codes that have the most frequent name of all.
    """
    _check(view, step)
    own, away = known.double(), prototypes.double()
    if view == TABLE:
        found = []
        for labels in _tables(own, away, enrolled):
            named = labels.flatten(1).mode(1).values[:, None, None]
            found.append(_shares(labels == named).mean(1))
        return torch.stack(found)
    logits = _logits(own.mean(1, keepdim=True) if view == "stored" else own, away, enrolled)  # (G, P, q, P)
    nearest = (-logits).amin(-1).clamp(min=0).sqrt()
    if view == "stored":
        return nearest
    named = torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()
    agreement = named.mean(2).amax(-1)  # (G, P); every answer names a label
    if view == "label":
        return agreement[..., None]
    odds = _log_odds(logits.softmax(-1).amax(-1), step if view == "rounded" else 0.0).mean(2)
    return torch.stack([*([] if view == "rounded" else [nearest.mean(2)]), odds, agreement], -1)


def accuracy(photographs: Tensor, prototypes: Tensor, galleries: Galleries) -> float:
    """Return how often unenrolled photographs of enrolled people have the right nearest prototype."""
    logits = _logits(photographs.double(), prototypes.double(), galleries.enrolled)
    right = logits.argmax(-1) == torch.arange(len(photographs))[None, :, None]
    asked = galleries.enrolled[..., None] & ~galleries.photographs(photographs.shape[1])
    return right[asked].double().mean().item()


def lira(shadow_scores: Tensor, shadow_members: Tensor, scores: Tensor) -> Tensor:
    """Return the log-likelihood ratio of member against non-member, each a Gaussian over shadow galleries.

    Source: Carlini et al. 2022, Algorithm 1, with a joint normal distribution of S scores (Sec. VI-C). The
    floor of a variance is ours: a stored prototype of one shot has a distance of 0 that never varies. (G, M,
    S) scores of M examples in shadow galleries, (G, M) whether they are members, and (M, S) of the attacked
    gallery -> (M,) float64; 0 for an example that was not at least twice a member and twice none.
    """
    scale = shadow_scores.double().std((0, 1), correction=0)
    scale = torch.where(scale > 0, scale, 1.0)
    middle = shadow_scores.double().mean((0, 1))
    shadows, asked = (shadow_scores.double() - middle) / scale, (scores.double() - middle) / scale
    ratio = _log_density(shadows, shadow_members, asked) - _log_density(shadows, ~shadow_members, asked)
    counts = shadow_members.sum(0)
    return torch.where((counts >= 2) & (counts <= len(shadow_members) - 2), ratio, 0.0)


def ratios(scores: Tensor, members: Tensor, *, attacked: int) -> tuple[Tensor, Tensor]:
    """Attack the first galleries, each with all others: (attacked, M) ratios, and members."""
    found = []
    for number in range(attacked):
        others = torch.arange(len(scores)) != number
        found.append(lira(scores[others], members[others], scores[number]))
    return torch.stack(found), members[:attacked]


@dataclass(frozen=True)
class Membership:
    """The success of an adversary."""

    members: int  # their number
    others: int
    auc: float  # the chance that a member scores above a non-member; ties count half
    # False-positive rates -> true-positive rate and its 95% interval, of Clopper & Pearson or over people.
    rates: dict[float, tuple[float, float, float]]


def judge(
    scores: Tensor, members: Tensor, *, at: Sequence[float] = (0.001, 0.01), people: Tensor | None = None
) -> Membership:
    """Judge the scores of members and others, of any shape, by the success at few false alarms.

    The threshold is the least with at most that share of the others above it, or their largest score. With
    `people`, who each score is of, (..., the last axis), intervals are over these, and else over scores.
    """
    inside, outside = scores[members].double().flatten(), scores[~members].double().flatten()
    if not len(inside) or not len(outside):
        raise DataError(f"{len(inside)} members and {len(outside)} others: at least one of each is needed")
    ordered = outside.sort().values
    below = torch.searchsorted(ordered, inside) + torch.searchsorted(ordered, inside, right=True)
    rates = {}
    for rate in at:
        threshold = ordered[len(ordered) - 1 - math.floor(rate * len(ordered))]
        hits, trials = int((inside > threshold).sum()), len(inside)
        limits = (lower_limit(hits, trials, alpha=0.025), upper_limit(hits, trials, alpha=0.025))
        if people is not None:
            own = people.expand_as(members)[members].unique(return_inverse=True)[1]
            limits = over_people(own.bincount(inside > threshold).tolist(), own.bincount().tolist())
        rates[rate] = (hits / trials, *limits)
    return Membership(len(inside), len(outside), (below.double().mean() / (2 * len(outside))).item(), rates)


def _check(view: str, step: float) -> None:
    if view not in (*VIEWS, TABLE):
        raise ConfigError(f"no view is called {view!r}: choose one of {', '.join(VIEWS)}")
    if not 0 < step <= 1:
        raise ConfigError(f"step={step:g}: a confidence is rounded to a step above 0, at most 1")


def _tables(own: Tensor, away: Tensor, enrolled: Tensor) -> Iterator[Tensor]:
    """Yield for each gallery the (P, n, m) classes of m codes: that of each photograph, and those near it."""
    if not torch.equal(own.abs(), torch.ones_like(own)):
        raise SpecError("a table needs codes of bits without noise: audit such a code, or omit the view")
    flips = [torch.ones(own.shape[-1], dtype=own.dtype)]
    for count in range(1, _NEAR + 1):
        for bits in combinations(range(own.shape[-1]), count):
            flips.append(flips[0].index_fill(0, torch.tensor(bits), -1))
    near = (own[:, :, None] * torch.stack(flips)).flatten(1, 2)  # (P, n * m, D)
    for prototypes, there in zip(away, enrolled, strict=True):
        yield _logits(near, prototypes[None], there[None])[0].argmax(-1).view(*own.shape[:2], -1)


def _shares(hits: Tensor) -> Tensor:
    """Average (P, n, m) bool, in the order of `_tables`, by number of differing bits -> (P, n, 3)."""
    bits = round((math.sqrt(8 * hits.shape[-1] - 7) - 1) / 2)  # of m = 1 + b + b (b - 1) / 2
    parts = hits.double().split([1, bits, bits * (bits - 1) // 2], dim=-1)
    return torch.stack([part.mean(-1) if part.shape[-1] else part.sum(-1) for part in parts], -1)


def _logits(photographs: Tensor, prototypes: Tensor, enrolled: Tensor) -> Tensor:
    """Minus squared distances, (P, n, D) and (G, P, D) -> (G, P, n, P); -inf if not enrolled."""
    flat = photographs.flatten(0, 1)
    squared = flat.square().sum(-1)[None, :, None] + prototypes.square().sum(-1)[:, None]
    logits = 2 * torch.einsum("nd,gpd->gnp", flat, prototypes) - squared
    logits = logits.masked_fill(~enrolled[:, None], -torch.inf)
    return logits.view(len(prototypes), *photographs.shape[:2], -1)


def _log_odds(probabilities: Tensor, step: float) -> Tensor:
    """Compute log-odds of exact (step 0) or rounded probabilities; finite for 0 and 1."""
    least = 1e-12
    if step:
        probabilities, least = (probabilities / step).round() * step, step / 4
    return probabilities.clamp(least, 1 - least).logit()


def _log_density(shadows: Tensor, inside: Tensor, asked: Tensor) -> Tensor:
    """Return the log density of (M, S) under each example's Gaussian over the selected shadows; (M,)."""
    weight = inside.double()[..., None]  # (G, M, 1)
    count = weight.sum(0).clamp(min=2)  # (M, 1)
    middle = (weight * shadows).sum(0) / count
    away = (shadows - middle) * weight
    covariance = torch.einsum("gms,gmt->mst", away, away) / (count[..., None] - 1)
    covariance = covariance + _FLOOR**2 * torch.eye(shadows.shape[-1], dtype=torch.float64)
    factor = torch.linalg.cholesky(covariance)
    scaled = torch.linalg.solve_triangular(factor, (asked - middle)[..., None], upper=False)[..., 0]
    logs = factor.diagonal(dim1=1, dim2=2).log().sum(1)
    density: Tensor = -0.5 * scaled.square().sum(1) - logs - 0.5 * shadows.shape[-1] * math.log(2 * math.pi)
    return density
