"""Adversaries on the values that travelled: cells, pixels and shapes, numbers, bits or the answer.

They know the protection, as the adaptive adversary does, and have no network: they learn the differences
between people from releases of the training people, and compare the probes with releases of the gallery.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from sfumato.attack import plda, reidentify
from sfumato.attack.table import Table, by_table
from sfumato.base.proportions import over_people
from sfumato.dp.naming import MOST_OUTPUTS
from sfumato.study.cells import Cell
from sfumato.study.lab import comparisons
from sfumato.study.lab.comparisons import Comparison
from sfumato.study.lab.streams import GALLERY, OTHERS, PROBES
from sfumato.study.parts.attacks.scores import hits, outcome, score, verify
from sfumato.study.protocol import Attack
from sfumato.study.vocabulary import IMAGES, release_kind

if TYPE_CHECKING:
    from sfumato.study.lab.lab import Lab

_VERSION = 2  # raised when the same adversaries would find more or less
_NUMBERS = 2048  # of an image at most: larger ones as means over squares, which named no fewer people
_SQUARE = 4  # its means are read as well, for noise on every pixel
_LEARNED = 20_000  # releases at most to learn from
_QUANTILES = 64  # of each channel, for an adversary who ignores the order of the values
_REDRAWN = 8  # releases of each photograph that a table counts

_Reading = Callable[[Any], Tensor]  # a release -> (N, D) numbers


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the figures of the attack."""
    adversary = lab.config.adversary
    return {
        "sensitive": lab.adversaries.sensitive,
        "values": _VERSION,
        **{name: getattr(adversary, name) for name in ("gallery", "probes", "copies")},
    }


def attack(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Looks for everybody on releases, and counts the successes; see attack.Result."""
    return compare_probes(lab, cell).result


def compare_probes(lab: "Lab", cell: Cell) -> Comparison:
    """The similarities for every probe."""
    return comparisons.compare_once(lab, cell, settings(lab, cell), _compare)


def attack_sorted(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Looks for everybody by which values travelled, whatever their order."""
    return compare_by(lab, cell, {"": _sort}).result


def _compare(lab: "Lab", cell: Cell) -> Comparison:
    return compare_by(lab, cell, None)


def compare_by(lab: "Lab", cell: Cell, ways: dict[str, _Reading] | None) -> Comparison:
    """The similarities for every probe, by the reading that names the most people of those to learn from.

    Args:
        lab, cell: the people and the protection.
        ways: words -> a release as (N, D) numbers; None for `readings`. The words of the chosen one are
            recorded beside the names of classifiers, which all seeds share, whatever they chose.
    """
    adversaries = lab.adversaries
    gallery, rows = adversaries.deal(cell.seed)
    people = adversaries.people
    codes = people.label(adversaries.sensitive).codes
    names, truth = codes[gallery], codes[rows]
    known = _release_copies(lab, cell, people.images[gallery], GALLERY, lab.config.adversary.copies)
    asked = _release_copies(lab, cell, people.images[rows], PROBES, 1)
    released, others = release_others(lab, cell, most=_LEARNED, copies=lab.config.adversary.copies)
    words, reading, model = _learner(released, others, ways or readings(lab, cell, asked[0]))
    known_values, asked_values = torch.stack([reading(released) for released in known]), reading(asked[0])
    guesses = list(reidentify.by_values(known_values, names, asked_values, model))
    scores = [score(made, truth, reading=words.removeprefix(", on ")) for made in guesses]
    if 0 < (getattr(lab.protection(cell), "outputs", None) or 0) <= MOST_OUTPUTS:
        more = [
            _release_copies(lab, cell, people.images[photographs], stream, _REDRAWN, first=len(releases))
            for photographs, stream, releases in ((gallery, GALLERY, known), (rows, PROBES, asked))
        ]
        table = _table([*known, *more[0]], names, [*asked, *more[1]], truth)
        # It replaces the one that counts a gallery's few copies.
        kept = [number for number, made in enumerate(guesses) if made.classifier != "table"]
        scores = [*(scores[number] for number in kept), _exact(table, truth)]
        exact = reidentify.Guesses(
            "table", torch.from_numpy(table.people), torch.from_numpy(table.log_posteriors[0])
        )
        guesses = [*(guesses[number] for number in kept), exact]
    result = {
        **outcome(scores, names, truth, gallery=len(gallery)),
        **_verify(known_values, names, asked_values, truth, model),
        "learned_from": len(others),
    }
    return Comparison.of(result, guesses)


def _verify(
    known: Tensor, names: Tensor, asked: Tensor, truth: Tensor, model: plda.PLDA | None
) -> dict[str, Any]:
    """The verification of pairs of photographs, by PLDA; nothing if nothing could be learned.

    Args:
        known: (R, n, D) values of the gallery.
        names: (n,) int64.
        asked: (m, D).
        truth: (m,) int64.
        model: of other people.
    """
    if model is None:
        return {}
    photographs = torch.arange(len(names))
    return verify(
        lambda rows: torch.from_numpy(model.log_ratios(known, photographs, asked[rows])[1]), names, truth
    )


def _release_copies(
    lab: "Lab", cell: Cell, images: Tensor, stream: int, copies: int, *, first: int = 0
) -> list[Any]:
    """The given number of releases of the images, as for the other adversaries; without noise all are one.

    Those before the number `first` are known already.
    """
    copies = copies if lab.protection(cell).draws_noise else 1
    return [lab.release(cell, images, stream, number) for number in range(first, copies)]


def release_others(lab: "Lab", cell: Cell, *, most: int, copies: int) -> tuple[list[Any], Tensor]:
    """Releases of the training people, and their codes; of some of the people if there are too many.

    Args:
        lab, cell: the images and the protection.
        most: releases in all.
        copies: releases of each photograph, if they differ.
    """
    others = lab.adversaries.others
    codes = others.label(lab.adversaries.sensitive).codes
    people, rows, counts = codes.unique(return_inverse=True, return_counts=True)
    order = lab.shuffle(len(people), cell.seed)
    kept = order[counts[order].cumsum(0) <= most]
    rows = torch.isin(rows, kept).nonzero().flatten()
    copies = max(1, min(copies, most // max(1, len(rows))))
    return _release_copies(lab, cell, others.images[rows], OTHERS, copies), codes[rows]


def _learner(
    released: list[Any], others: Tensor, ways: dict[str, _Reading]
) -> tuple[str, _Reading, plda.PLDA | None]:
    """The reading of a release that names the most held-out people: its words, it, its model.

    The first, and no model, if nothing can be learned.
    """
    models = {}
    for words, reading in ways.items():
        values = torch.stack([reading(each) for each in released])
        if not plda.trainable(values, others):
            return words, reading, None
        models[words] = plda.train(values, others)
    best = max(models, key=lambda words: models[words].held_out)
    return best, ways[best], models[best]


def readings(lab: "Lab", cell: Cell, released: Any) -> dict[str, _Reading]:
    """The ways to read a release as numbers: their words, and the way.

    Noise on every pixel is read as means over squares as well, which remove most of it.
    """
    if release_kind(cell.protection) not in IMAGES:
        return {"": lambda released: released.vectors()}
    channels, height, width = _planes(released).shape[1:]
    side = next(side for side in range(1, height + width) if channels * height * width <= _NUMBERS * side**2)
    ways = {"" if side == 1 else f", on {side}x{side} means": _means(side)}
    if lab.protection(cell).draws_noise and released.cell == 1 and side < _SQUARE < min(height, width):
        ways[f", on {_SQUARE}x{_SQUARE} means"] = _means(_SQUARE)
    return ways


def _sort(released: Any) -> Tensor:
    """Quantiles of each channel of an image; other numbers in order of size."""
    if getattr(released, "kind", "pixels") not in IMAGES:
        values: Tensor = released.vectors()
        return values.sort(1).values
    values = _planes(released).flatten(2).sort(2).values
    kept = torch.linspace(0, values.shape[2] - 1, min(_QUANTILES, values.shape[2])).long()
    return values[..., kept].flatten(1)


def _planes(released: Any) -> Tensor:
    """(N, C, h, w) float32 values from 0 to 1; for a mask, another channel that marks shown pixels."""
    values: Tensor = released.values.float() / 255
    return values if released.shown is None else torch.cat([values, released.shown.float()], 1)


def _means(side: int) -> _Reading:
    """Means over squares of that side, which are cut at the border."""
    return lambda released: functional.avg_pool2d(
        _planes(released), side, ceil_mode=True, count_include_pad=False
    ).flatten(1)


def _table(known: list[Any], names: Tensor, asked: list[Any], truth: Tensor) -> Table:
    gallery, probes = (
        torch.stack([released.vectors() for released in releases]) for releases in (known, asked)
    )
    return by_table(gallery, names, probes, truth)


def _exact(table: Table, truth: Tensor) -> dict[str, Any]:
    """The score of the exact table, with its 95% interval over people: a probe's releases count as one."""
    counted = hits(torch.from_numpy(table.right), truth)
    low, high = over_people(counted, truth.unique(return_counts=True)[1].tolist())
    return {
        "classifier": "table",
        **{"top1": table.top1, "low": low, "high": high, "in_sample": table.in_sample},
        "hits": counted,
    }


ATTACK = Attack(settings, attack, compare_probes)
SORTED = Attack(settings, attack_sorted)
