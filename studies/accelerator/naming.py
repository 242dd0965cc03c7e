"""Naming people from sets of codes: adversaries who know releases of each person, and get n more of one of them.

Half of the releases of each person are known, in a gallery; n of the others, drawn again and again, are to be named among
the people of a panel. Which adversary is used is chosen by the people of one half, and stated for those of the other; both ways.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pool import mean_and_half_width
from torch import Tensor
from torch.nn import functional

from sfumato.attack import plda

SIZES = (1, 10, 30, 75, 100)
PANEL = 40  # people among whom one is named: guessing is 2.5%
DRAWS = 10  # of galleries, panels and sets
_STEPS, _RATE = 150, 0.05  # of a logistic regression
_WEAK, _STRONG = (
    (0.01, 0.1),
    (0.03, 0.3),
)  # how strongly its weights are held down: of bits, and of bits and products
_TABLED = 8  # bits of a code at most of which each output is counted
_PRIOR = 20.0  # releases that what all people send counts for, beside those of a person
_COMPONENTS = 64  # of the products, for PLDA

Scores = Callable[
    [int], Tensor
]  # n -> (B, P, G, P) how well sets of n releases of each person fit each person
View = Callable[
    [Tensor], Tensor
]  # (..., T, d) numbers in the order in which a device sends -> (..., T, d) of -1 and 1


@dataclass(frozen=True)
class Shared:
    """Panels of known people: (B, P, H, b) codes in the gallery, (B, P, H, b) to be named, (O, T, b) of other people."""

    gallery: Tensor
    probes: Tensor
    others: Tensor


def products(codes: Tensor) -> Tensor:
    """(..., b) bits -> (..., b + b(b - 1)/2), the products of all pairs beside them."""
    first, second = torch.triu_indices(codes.shape[-1], codes.shape[-1], 1)
    return torch.cat([codes, codes[..., first] * codes[..., second]], -1)


def sets(values: Tensor, size: int) -> Tensor:
    """(B, P, H, ...) -> (B, P, H // n, n, ...), one after the other."""
    count = values.shape[2] // size
    return values[:, :, : count * size].unflatten(2, (count, size))


def whitened_means(shared: Shared) -> Scores:
    """The mean of a set against those of the gallery, by the covariance of releases of one person."""
    means = shared.gallery.mean(2)  # (B, P, b)
    inner = (shared.gallery - means[:, :, None]).flatten(1, 2)
    covariance = inner.mT @ inner / inner.shape[1]
    floor = 1e-3 * torch.eye(covariance.shape[-1], device=covariance.device)
    half = torch.linalg.cholesky(torch.linalg.inv(covariance + floor))
    known = means @ half

    def scores(size: int) -> Tensor:
        asked = sets(shared.probes, size).mean(3) @ half[:, None]  # (B, P, G, b)
        return -torch.cdist(asked.flatten(1, 2), known).unflatten(1, asked.shape[1:3])

    return scores


def summed(log_likelihoods: Tensor) -> Scores:
    """(B, P, H, P) of single releases, which are added up."""
    return lambda size: sets(log_likelihoods, size).sum(3)


def regressed(shared: Shared, features: Callable[[Tensor], Tensor], held: float) -> Scores:
    """The log-probabilities of logistic regressions, one a panel, all at once."""
    known, asked = features(shared.gallery), features(shared.probes)  # (B, P, H, F)
    mean = known.mean((1, 2), keepdim=True)
    spread = known.std((1, 2), keepdim=True).clamp(min=1e-3)
    x, z = ((each - mean) / spread for each in (known, asked))
    panels, people, each, size = x.shape
    x = x.flatten(1, 2)  # (B, P·H, F)
    own = torch.arange(people, device=x.device).repeat_interleave(each).expand(panels, -1)
    weights = x.new_zeros(panels, size, people, requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _STEPS)
    for _ in range(_STEPS):
        loss = functional.cross_entropy((x @ weights).mT, own, reduction="sum") / (people * each)
        loss = loss + held / 2 * weights.square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        return summed((z.flatten(1, 2) @ weights).log_softmax(-1).unflatten(1, (people, -1)))


def counted(shared: Shared) -> Scores:
    """How often each person sent each output: exact for few bits, with what all people send as the prior."""
    bits = shared.gallery.shape[-1]
    powers = 2 ** torch.arange(bits, device=shared.gallery.device)
    known, asked, others = (
        ((codes > 0).long() * powers).sum(-1) for codes in (shared.gallery, shared.probes, shared.others)
    )
    usual = torch.bincount(others.flatten(), minlength=2**bits).float() + 0.5
    usual = usual / usual.sum()
    counts = functional.one_hot(known, 2**bits).sum(2).float()  # (B, P, 2^b)
    logs = ((counts + _PRIOR * usual) / (known.shape[2] + _PRIOR)).log()
    people = asked.shape[1]
    single = (
        logs[:, None].expand(-1, people, -1, -1).gather(3, asked[:, :, None].expand(-1, -1, people, -1))
    )  # (B, P, P, H)
    return summed(single.movedim(2, 3))


def by_plda(shared: Shared, features: Callable[[Tensor], Tensor], dimensions: int | None) -> Scores:
    """Likelihood ratios of sets by a model of other people (attack.plda)."""
    others = features(shared.others).cpu()
    identities = torch.arange(len(others)).repeat_interleave(others.shape[1])
    model = plda.train(others.flatten(0, 1)[None], identities, dimensions=dimensions)
    gallery, probes = features(shared.gallery).cpu(), features(shared.probes).cpu()
    own = torch.arange(gallery.shape[1]).repeat_interleave(gallery.shape[2])

    def scores(size: int) -> Tensor:
        asked = sets(probes, size).flatten(1, 2)  # (B, P·G, n, F)
        ratios = [
            model.log_ratios(known.flatten(0, 1)[None], own, of_panel)[1]
            for known, of_panel in zip(gallery, asked, strict=True)
        ]
        return torch.stack(ratios).unflatten(1, (gallery.shape[1], -1)).float().to(shared.gallery.device)

    return scores


def adversaries(shared: Shared) -> dict[str, Scores]:
    """All of them, trained."""

    def bits(codes: Tensor) -> Tensor:
        return codes

    made = {"whitened means": whitened_means(shared)}
    made |= {f"logistic regression {held:g}": regressed(shared, bits, held) for held in _WEAK}
    made |= {
        f"logistic regression of products {held:g}": regressed(shared, products, held) for held in _STRONG
    }
    if shared.gallery.shape[-1] <= _TABLED:
        made["table"] = counted(shared)
    for name, features, dimensions in (("PLDA", bits, None), ("PLDA of products", products, _COMPONENTS)):
        flat = features(shared.others).flatten(0, 1)
        if bool((flat.std(0) > 0).any()):
            made[name] = by_plda(shared, features, dimensions)
    return made


def named(
    numbers: Tensor, others: Tensor, view: View, *, panel: int = PANEL, images: int = 1, seed: int = 0
) -> dict[str, Any]:
    """How often each adversary names people, from each number of releases.

    Args:
        numbers: (I, T, d) what an encoder gives of T images of each person; of these a panel is `panel`.
        others: (O, T', d) the same of people whom nobody looks for.
        view: what of it is sent, image after image; called for each order of images anew.
        panel: people of a panel; twice as many at least are needed.
        images: of each photograph, which follow each other: all are known, or all are to be named.
        seed: of halves, panels and orders.
    """
    draw = torch.Generator().manual_seed(seed)
    people, pictures = numbers.shape[:2]
    halves = torch.randperm(people, generator=draw).split(people // 2)[:2]
    panels = people // 2 // panel
    gallery, probes, who = [], [], []
    for _ in range(DRAWS):
        known = torch.rand(people, pictures // images, generator=draw).argsort(1).argsort(1)
        late = (known >= pictures // images // 2).float().repeat_interleave(images, 1)
        order = (late + torch.rand(people, pictures, generator=draw)).argsort(1).to(numbers.device)
        sent = view(numbers.gather(1, order[..., None].expand_as(numbers)))
        for half in halves:
            for members in half[torch.randperm(len(half), generator=draw)].split(panel)[:panels]:
                gallery.append(sent[members, : pictures // 2])
                probes.append(sent[members, pictures // 2 : pictures // 2 * 2])
                who.append(members)
    shared = Shared(torch.stack(gallery), torch.stack(probes), view(others))
    owners = torch.stack(who)  # (B, P)
    of_half = (torch.arange(len(owners)) // panels % 2)[:, None].expand_as(owners)
    result: dict[str, Any] = {"guessing": 1 / panel, "people": int(owners.unique().numel()), "panel": panel}
    shares = {}
    for name, scores in adversaries(shared).items():
        for size in SIZES:
            if size > shared.probes.shape[2]:
                continue
            guesses = scores(size).argmax(-1)  # (B, P, G)
            right = (
                (guesses == torch.arange(panel, device=guesses.device)[None, :, None]).float().mean(2).cpu()
            )
            shares[name, size] = right
    names = list(dict.fromkeys(name for name, _ in shares))
    result["by_adversary"] = {
        name: {
            str(size): round(shares[name, size].mean().item(), 4)
            for _, size in shares
            if (name, size) in shares
        }
        for name in names
    }
    result["named"] = {
        str(size): _stated({name: shares[name, size] for name in names}, owners, of_half)
        for size in SIZES
        if (names[0], size) in shares
    }
    return result


def _stated(shares: dict[str, Tensor], owners: Tensor, of_half: Tensor) -> dict[str, Any]:
    """Of each half of the people by the adversary who is best on the other."""
    rates, chosen = [], []
    for half in (0, 1):
        best = max(shares, key=lambda name: shares[name][of_half != half].mean().item())
        chosen.append(best)
        here = of_half == half
        codes, place = owners[here].unique(return_inverse=True)
        total = torch.zeros(len(codes)).index_add(0, place, shares[best][here])
        rates.append((total / place.bincount()).numpy())
    rate = np.concatenate(rates)
    share, half_width = mean_and_half_width(rate)
    return {
        "share": share,
        "half_width": half_width,
        "worst": round(float(rate.max()), 4),
        "over_half": round(float((rate > 0.5).mean()), 4),
        "chosen": chosen,
    }
