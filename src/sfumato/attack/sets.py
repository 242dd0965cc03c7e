"""Name people by many releases: adversaries know releases of each person and get n more of one of them.

Some pictures of each person are known, in a gallery; n of the others, drawn again and again, are named
among the people of a panel. One half of the people chooses the adversary, and the other half measures how
often they are right, both ways: the largest of many figures would be large by luck. A panel is of one half:
a person named too often takes from others, so that the best of a panel would look bad on the rest of it. The
same comparisons count the people who are recognised as the person of a label, and the labels of two services,
with n releases of each person, that are found to belong together.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.attack import plda
from sfumato.attack.table import by_table
from sfumato.dp.naming import MOST_OUTPUTS
from sfumato.errors import DataError
from sfumato.networks.weights import initial_weights

SIZES = (1, 3, 10, 30, 100)  # releases of one person
PANEL = 100  # people in a panel at most
_FEWEST = 4  # people who can be named: two in each half
DRAWS = 10  # of galleries, panels and sets
_STEPS, _RATE = 100, 0.05  # of a logistic regression
_WEIGHT = 0.03  # of the squares of its weights, in its loss
_COMPONENTS = 64  # of products, for PLDA
_NUMBERS = 32  # of a release at most, to try products of pairs
_PRIOR = 20.0  # releases that the common distribution weighs in a table, next to those of a person
_FALSE_ALARMS, _COMPARED = 0.01, 200_000  # and pairs of two people that set its threshold
_WIDTH, _EMBEDDED, _NETWORK_STEPS, _NETWORK_RATE, _BATCH = 64, 32, 150, 3e-3, 48  # of the network on sets

Scores = Callable[[int], Tensor]  # n -> (B, P, G, P), how well each set of n fits each person of its panel
Linker = Callable[[Tensor], Scores]  # a gallery, (B, P, H, d), that may be as small as a set
View = Callable[[Tensor], Tensor]  # (..., T, d) in the order in which a device sends them -> the numbers sent


@dataclass(frozen=True)
class Panels:
    """Numbers of releases: of known people, of the same to be named, and of others.

    Attributes:
        gallery, probes: (B, P, H, d) and (B, P, H', d), of P people in each of B panels.
        others, of_others: (M, d), and who they are, (M,) int64.
    """

    gallery: Tensor
    probes: Tensor
    others: Tensor
    of_others: Tensor

    @property
    def own(self) -> Tensor:
        """(P·H,) who is on each release of the gallery of a panel."""
        return torch.arange(self.gallery.shape[1]).repeat_interleave(self.gallery.shape[2])

    def of(self, features: Callable[[Tensor], Tensor]) -> "Panels":
        """Map the numbers of each release to others."""
        gallery, probes, others = map(features, (self.gallery, self.probes, self.others))
        return Panels(gallery, probes, others, self.of_others)


@dataclass(frozen=True)
class Point:
    """How well n releases of one person identify them.

    Attributes:
        releases: n.
        people: (P,) int64 codes of those who were looked for.
        named: (P,) shares of their tries in which they are named rightly, by the adversary whom the other
            half of the people chose.
        tries: (P,) int64, how often a gallery, a panel and sets were drawn for each.
        chosen: by the first half and by the second.
        by_adversary: their shares, of all people.
        accepted: the share of sets that are accepted as the right person's, if 1 in 100 of others is too.
        linked: (P,) as `named`, with n releases in the gallery, too; adversaries learn from other people
            of their own service alone.
    """

    releases: int
    people: Tensor
    named: Tensor
    tries: Tensor
    chosen: tuple[str, str]
    by_adversary: Mapping[str, float]
    accepted: float
    linked: Tensor


@dataclass(frozen=True)
class Curve:
    """How naming grows with the number of releases.

    Attributes:
        points: by rising n, of the same people.
        panel: the number of people in a panel: guessing is right in 1/panel.
        pictures: of each person.
    """

    points: tuple[Point, ...]
    panel: int
    pictures: int


def pictures_for(releases: int) -> int:
    """Return how many pictures of a person are needed: n to name them by, half as many to know them by."""
    return releases + max(1, releases // 2)


def measurable(people: Tensor, most: int = SIZES[-1]) -> int:
    """The most releases from which people can be named: half of those with two pictures have enough.

    Args:
        people: (N,) int64, who is on each picture.
        most: the largest size to return.

    Returns:
        one of SIZES; 0 if fewer than four people have two pictures.
    """
    counts = people.unique(return_counts=True)[1]
    enough = {size: int((counts >= pictures_for(size)).sum()) for size in SIZES if size <= most}
    least = max(_FEWEST, enough[1] / 2)
    return max((size for size, able in enough.items() if able >= least), default=0)


def curve(
    views: Mapping[str, tuple[Tensor, Tensor]],
    people: Tensor,
    of_others: Tensor,
    *,
    scenes: Tensor | None = None,
    most: int = SIZES[-1],
    sent: View = lambda numbers: numbers,
    panel: int = PANEL,
    draws: int = DRAWS,
    seed: int,
) -> Curve:
    """Measure how often people are named from 1, 3, 10, ... releases of them, see the module.

    Args:
        views: words -> (N, d) numbers of each release, as somebody sees it, and (M, d) of other people's.
        people: (N,) int64, who is on each; of those with enough pictures, see `measurable`.
        of_others: (M,) int64.
        scenes: (N,) int64, equal for releases of one picture, which stay together; None if all differ.
        most: releases.
        sent: turns numbers into those sent, image after image; called for each order anew.
        panel: people of a panel, at most.
        draws: how often galleries, panels and sets are drawn.
        seed: of all that is drawn.

    Raises:
        DataError: fewer than four people have two pictures.
    """
    size = measurable(people, most)
    if not size:
        raise DataError("fewer than four people have two pictures: there is nobody to look for")
    draw = torch.Generator().manual_seed(seed)
    codes, counts = people.unique(return_counts=True)
    looked_for = codes[counts >= pictures_for(size)]
    pictures = int(counts[counts >= pictures_for(size)].min())
    half = torch.randperm(len(looked_for), generator=draw) % 2
    panel = min(panel, len(looked_for) // 2)
    deals = [_deal(people, looked_for, half, scenes, panel, pictures, size, draw) for _ in range(draws)]
    probes = min(rows.shape[-1] for _, _, rows in deals)
    known = min(rows.shape[-1] for _, rows, _ in deals)
    who = torch.cat([members for members, _, _ in deals])  # (B, P), numbers of `looked_for`
    rows = torch.cat(
        [torch.cat([first[..., :known], second[..., :probes]], -1) for _, first, second in deals]
    )
    panels = {}
    for words, (values, others) in views.items():
        first, second = sent(values[rows]).float().split([known, probes], 2)
        panels[words] = Panels(first, second, others.float(), of_others)
    sizes = [each for each in SIZES if each <= min(size, probes)]
    namers: dict[str, Scores] = {}
    linkers: dict[str, Scores] = {}
    for words, shown in panels.items():
        namers |= dict(adversaries(shown, words))
        for name, linker in _of_other_people(shown, words, seed):
            namers[name] = linker(shown.gallery)
            linkers[name] = partial(_link, linker, shown.gallery)
    points = tuple(_point(each, namers, linkers, who, half, looked_for) for each in sizes)
    return Curve(points, panel, known + probes)


def _deal(
    people: Tensor,
    looked_for: Tensor,
    half: Tensor,
    scenes: Tensor | None,
    panel: int,
    pictures: int,
    size: int,
    draw: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw panels, and rows of known and of tested releases: (B, P), (B, P, H), (B, P, H')."""
    order = torch.randperm(len(looked_for), generator=draw)
    halves = [order[half[order] == side] for side in (0, 1)]
    members = torch.cat([each[: len(each) // panel * panel] for each in halves]).view(-1, panel)
    probes = max(size, pictures // 2)
    sides: list[list[Tensor]] = []
    for code in looked_for[members.flatten()]:
        rows = (people == code).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=draw)]
        of_scene = (rows if scenes is None else scenes[rows]).unique(return_inverse=True)[1]
        place = torch.randperm(int(of_scene.max()) + 1, generator=draw)
        asked = place[of_scene] < round(len(place) * probes / pictures)
        sides.append([rows[~asked][: pictures - probes], rows[asked][:probes]])
    first, second = (
        torch.stack([side[: min(map(len, of_side))] for side in of_side]).unflatten(0, members.shape)
        for of_side in zip(*sides, strict=True)
    )
    return members, first, second


def _link(linker: Linker, gallery: Tensor, size: int) -> Tensor:
    """Score as Scores does, by a gallery with no more releases of each person than a set."""
    return linker(gallery[:, :, :size])(size)


def _point(
    size: int,
    namers: Mapping[str, Scores],
    linkers: Mapping[str, Scores],
    who: Tensor,
    half: Tensor,
    codes: Tensor,
) -> Point:
    """Measure all adversaries on sets of a size."""
    asked = dict(_shares(namers, size))
    right = {name: shares for name, (shares, _) in asked.items()}
    named, chosen = _state(right, who, half)
    linked, _ = _state({name: shares for name, (shares, _) in _shares(linkers, size)}, who, half)
    accepted = [asked[name][1][half[who] != side].mean() for side, name in enumerate(chosen)]
    counts = who.flatten().bincount(minlength=len(codes))
    there = counts > 0
    return Point(
        releases=size,
        people=codes[there],
        named=named[there],
        tries=counts[there],
        chosen=chosen,
        by_adversary={name: shares.mean().item() for name, shares in right.items()},
        accepted=torch.stack(accepted).mean().item(),
        linked=linked[there],
    )


def _shares(made: Mapping[str, Scores], size: int) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """Yield for each (B, P) shares of sets that are named rightly, and accepted at few false alarms."""
    for name, scores in made.items():
        fit = scores(size).cpu()  # (B, P, G, P)
        people = fit.shape[1]
        own = torch.arange(people)[None, :, None, None].expand(*fit.shape[:3], 1)
        # Ties count against the adversary by how many there are.
        best = fit == fit.amax(-1, keepdim=True)
        right = (best.float() / best.sum(-1, keepdim=True)).gather(3, own)[..., 0]
        of_own = fit.gather(3, own)[..., 0]
        of_two = fit[~functional.one_hot(own[..., 0], people).bool()]
        of_two = of_two[:: max(1, len(of_two) // _COMPARED)]
        accepted = of_own > of_two.kthvalue(max(1, int((1 - _FALSE_ALARMS) * len(of_two)))).values
        yield name, (right.mean(2), accepted.float().mean(2))


def _state(shares: Mapping[str, Tensor], who: Tensor, half: Tensor) -> tuple[Tensor, tuple[str, str]]:
    """Take each person's shares by the best adversary on the other half; return the best of each half, too.

    Args:
        shares: of each adversary, (B, P).
        who: (B, P) numbers of people.
        half: (people,) 0 or 1.
    """
    named = torch.zeros(len(half))
    counts = who.flatten().bincount(minlength=len(half)).clamp(min=1)
    chosen = []
    for side in (0, 1):
        here = half[who] == side
        best = max(shares, key=lambda name: shares[name][here].mean().item())
        chosen.append(best)
        sums = torch.zeros(len(half)).index_add(0, who.flatten(), shares[best].flatten())
        named = torch.where(half == side, named, sums / counts)
    return named, (chosen[0], chosen[1])


def adversaries(shown: Panels, words: str) -> Iterator[tuple[str, Scores]]:
    """Yield adversaries who see one view of releases and learn from a gallery; `words` follow their names."""
    yield f"whitened means{words}", by_whitened_means(shown, shown.gallery)
    yield f"logistic regression{words}", by_regression(shown)
    pairs = 1 < shown.gallery.shape[-1] <= _NUMBERS
    if pairs:
        yield f"logistic regression of products{words}", by_regression(shown.of(products))
    if _repeat(shown):
        yield f"table{words}", by_counts(shown)
    if pairs and _teach(shown):
        of_pairs = shown.of(products)
        yield f"plda of products{words}", by_plda(of_pairs, _COMPONENTS)(of_pairs.gallery)


def _of_other_people(shown: Panels, words: str, seed: int) -> Iterator[tuple[str, Linker]]:
    """Yield adversaries who learn from other people alone, so that a gallery may be as small as a set."""
    yield f"means{words}", partial(by_whitened_means, shown, inner=_inner_of_others(shown))
    if _teach(shown):
        yield f"plda{words}", by_plda(shown, None)
        yield f"network{words}", by_network(shown, seed)


def _teach(shown: Panels) -> bool:
    return plda.trainable(shown.others[None], shown.of_others)


def _repeat(shown: Panels) -> bool:
    """Whether releases are so often equal that a table can count them."""
    every = shown.gallery.flatten(0, -2)
    outputs = len(torch.cat([every, shown.probes.flatten(0, -2)]).unique(dim=0))
    return outputs <= min(MOST_OUTPUTS, shown.gallery[0, :, :, 0].numel() // 2)


def products(codes: Tensor) -> Tensor:
    """(..., b) -> (..., b + b(b - 1)/2), with the products of all pairs appended."""
    first, second = torch.triu_indices(codes.shape[-1], codes.shape[-1], 1)
    return torch.cat([codes, codes[..., first] * codes[..., second]], -1)


def sets(values: Tensor, size: int) -> Tensor:
    """(B, P, H, ...) -> (B, P, H // n, n, ...), one after the other."""
    count = values.shape[2] // size
    return values[:, :, : count * size].reshape(*values.shape[:2], count, size, *values.shape[3:])


def _by_distance(asked: Tensor, known: Tensor) -> Tensor:
    """(B, P, G, d) and (B, P, d) -> (B, P, G, P), minus the distances."""
    return -torch.cdist(asked.flatten(1, 2), known).reshape(*asked.shape[:3], known.shape[1])


def _inner_of_others(shown: Panels) -> Tensor:
    """(1, M, d), how releases of other people differ from the mean of their person."""
    people, rows = shown.of_others.unique(return_inverse=True)
    rows = rows.to(shown.others.device)
    sums = shown.others.new_zeros(len(people), shown.others.shape[1]).index_add(0, rows, shown.others)
    means = sums / rows.bincount()[:, None]
    inner: Tensor = shown.others - means[rows]
    return inner[None]


def by_whitened_means(shown: Panels, gallery: Tensor, *, inner: Tensor | None = None) -> Scores:
    """Compare the mean of a set with those of a gallery, by the covariance of releases of one person.

    `inner`: (1 or B, M, d) differences that say the covariance; None for those of the gallery.
    """
    means = gallery.mean(2)  # (B, P, d)
    inner = (gallery - means[:, :, None]).flatten(1, 2) if inner is None else inner
    covariance = inner.mT @ inner / inner.shape[1]
    least = 1e-3 * covariance.diagonal(dim1=1, dim2=2).mean(1).clamp(min=1e-6)
    identity = torch.eye(covariance.shape[-1], device=covariance.device)
    # The inverse of the factor, and not the factor of the inverse, which rounding may leave without one.
    half = torch.linalg.inv(torch.linalg.cholesky(covariance + least[:, None, None] * identity)).mT
    known = means @ half
    return lambda size: _by_distance(sets(shown.probes, size).mean(3) @ half[:, None], known)


def add_up(log_likelihoods: Tensor) -> Scores:
    """Add up (B, P, H, P) of single releases over sets."""
    return lambda size: sets(log_likelihoods, size).sum(3)


def by_regression(shown: Panels) -> Scores:
    """Score by log-probabilities of logistic regressions, one a panel, all at once."""
    mean = shown.gallery.mean((1, 2), keepdim=True)
    spread = shown.gallery.std((1, 2), keepdim=True).clamp(min=1e-3)
    x, z = ((each - mean) / spread for each in (shown.gallery, shown.probes))
    panels, people, known, count = x.shape
    x = x.flatten(1, 2)  # (B, P·H, d)
    own = shown.own.to(x.device).expand(panels, -1)
    weights = x.new_zeros(panels, count, people, requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _STEPS)
    for _ in range(_STEPS):
        loss = functional.cross_entropy((x @ weights).mT, own, reduction="sum") / (people * known)
        loss = loss + _WEIGHT / 2 * weights.square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        return add_up((z.flatten(1, 2) @ weights).log_softmax(-1).unflatten(1, (people, -1)))


def by_counts(shown: Panels) -> Scores:
    """Score by how often each person sent each output: the exact table of the gallery, for few outputs."""
    people, asked = shown.probes.shape[1:3]
    truth = torch.arange(people).repeat_interleave(asked)
    tables = [
        by_table(known[None], shown.own, probes[None], truth, prior=_PRIOR)
        for known, probes in zip(
            shown.gallery.flatten(1, 2).cpu(), shown.probes.flatten(1, 2).cpu(), strict=True
        )
    ]
    logs = torch.stack([table.log_posteriors[0] - table.log_prior for table in tables])
    return add_up(logs.unflatten(1, (people, asked)).float())


def by_plda(shown: Panels, dimensions: int | None) -> Linker:
    """Score by likelihood ratios of sets under a model of other people (attack.plda)."""
    model = plda.train(shown.others.cpu()[None], shown.of_others, dimensions=dimensions)
    probes = shown.probes.cpu()

    def of(gallery: Tensor) -> Scores:
        people, known = gallery.shape[1:3]
        own = torch.arange(people).repeat_interleave(known)
        panels = gallery.cpu().flatten(1, 2)[:, None]  # (B, 1, P·H, d)

        def scores(size: int) -> Tensor:
            asked = sets(probes, size).flatten(1, 2)  # (B, P·G, n, d)
            both = zip(panels, asked, strict=True)
            ratios = torch.stack(
                [model.log_ratios(of_known, own, of_asked)[1] for of_known, of_asked in both]
            )
            return ratios.reshape(len(ratios), people, -1, people).float()

        return scores

    return of


class _OnSets(nn.Module):
    """Embeds a set by the mean embedding of its releases (Zaheer et al. 2017). State: weights."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Linear(numbers, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU())
        self.mean = nn.Linear(_WIDTH, _EMBEDDED)


def by_network(shown: Panels, seed: int) -> Linker:
    """Score by a small network on sets, trained on other people to put two sets of one near each other."""
    device, generator = shown.others.device, torch.Generator().manual_seed(seed)
    spread, mean = torch.std_mean(shown.others, 0)
    scaled = partial(_scale, mean=mean, spread=spread.clamp(min=1e-3))
    with initial_weights(seed):
        network = _OnSets(shown.others.shape[1]).to(device)
    rows = _two_sides(shown.of_others, generator)  # (2, O, H)
    values = scaled(shown.others)
    optimiser = torch.optim.Adam(network.parameters(), lr=_NETWORK_RATE)
    for _ in range(_NETWORK_STEPS):
        some = torch.randperm(rows.shape[1], generator=generator)[:_BATCH]
        size = int(torch.randint(1, rows.shape[2] + 1, (), generator=generator))
        columns = torch.randint(rows.shape[2], (2, len(some), size), generator=generator)
        of_both = rows[:, some].gather(2, columns).to(device)  # (2, S, n)
        first, second = network.mean(network.each(values[of_both]).mean(2))
        distances = -torch.cdist(first, second).square()
        loss = functional.cross_entropy(distances, torch.arange(len(some), device=device))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    network.requires_grad_(False)
    asked = network.each(scaled(shown.probes))

    def of(gallery: Tensor) -> Scores:
        known = network.mean(network.each(scaled(gallery)).mean(2))
        return lambda size: _by_distance(network.mean(sets(asked, size).mean(3)), known)

    return of


def _scale(values: Tensor, *, mean: Tensor, spread: Tensor) -> Tensor:
    return (values - mean) / spread


def _two_sides(people: Tensor, draw: torch.Generator) -> Tensor:
    """Split rows of the releases of each person who has two into halves, some twice. (M,) -> (2, O, H)."""
    every = [(people == code).nonzero().flatten() for code in people.unique()]
    shuffled = [rows[torch.randperm(len(rows), generator=draw)] for rows in every if len(rows) > 1]
    halves = [rows.split((len(rows) + 1) // 2) for rows in shuffled]
    longest = max(len(part) for part in itertools.chain(*halves))
    return torch.stack(
        [
            torch.stack([pair[side][torch.arange(longest) % len(pair[side])] for pair in halves])
            for side in (0, 1)
        ]
    )
