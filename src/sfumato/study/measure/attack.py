"""How often adversaries name the person on a release: by recognisers, by the values that travelled, or fused.

Those on values know the protection, as the adaptive adversary does, and have no network: they learn the
differences between people from releases of the training people, and compare probes with releases of the
gallery.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sfumato import artefacts
from sfumato.assess import identity, log_rank, recognition
from sfumato.attack.ensemble import (
    MOST,
    Compared,
    Gallery,
    See,
    by_images,
    by_student,
    by_values,
    by_vectors,
    choose,
    standardise,
)
from sfumato.attack.reidentify import Guesses
from sfumato.attack.sets import Table
from sfumato.base.proportions import over_people
from sfumato.errors import ConfigError
from sfumato.study.cells import Cell, Facts, Method, kind_by_methods, method_of, non_defaults
from sfumato.study.lab.lab import Lab
from sfumato.study.measure.accuracy import serve_vectors
from sfumato.study.measure.looks import view_release
from sfumato.study.vocabulary import ATTACKS, IMAGES, attacks_of, release_kind

# Raised when the same adversaries on values, all together, or by a student, would find more or less.
_VALUES, _FUSION, _STUDENT = 4, 2, 1
_PAIRS = 20_000_000  # at most this many pairs are verified: more would need gigabytes
_NUMBERS = 2048  # of an image at most: larger ones as means over squares, which named no fewer people
_SQUARE = 4  # its means are read as well, for noise on every pixel
_QUANTILES = 64  # of each channel, for an adversary who ignores the order of the values


# The values that travelled


def readings(gallery: Gallery) -> dict[str, See]:
    """The ways to read a release as numbers, by their words.

    Noise on every pixel is read as means over squares as well, and words as a cloud decodes them.
    """
    if not gallery.images:
        codes, decoded = serve_vectors(gallery.released).codes, dict[str, See]()
        if codes is not None and codes.words is not None:
            decoded[", decoded"] = lambda released: torch.from_numpy(serve_vectors(released).vectors)
        return {"": lambda released: released.vectors(), **decoded}
    channels, height, width = _planes(gallery.released).shape[1:]
    side = next(side for side in range(1, height + width) if channels * height * width <= _NUMBERS * side**2)
    ways = {"" if side == 1 else f", on {side}x{side} means": means(side)}
    if gallery.noisy and gallery.released.cell == 1 and side < _SQUARE < min(height, width):
        ways[f", on {_SQUARE}x{_SQUARE} means"] = means(_SQUARE)
    return ways


def means(side: int) -> See:
    """Means over squares of that side, which are cut at the border."""
    return lambda released: functional.avg_pool2d(
        _planes(released), side, ceil_mode=True, count_include_pad=False
    ).flatten(1)


def _sort(released: Any) -> Tensor:
    if getattr(released, "kind", "pixels") not in IMAGES:
        vectors: Tensor = released.vectors()
        return vectors.sort(1).values
    values = _planes(released).flatten(2).sort(2).values
    kept = torch.linspace(0, values.shape[2] - 1, min(_QUANTILES, values.shape[2])).long()
    return values[..., kept].flatten(1)


def _planes(released: Any) -> Tensor:
    """(N, C, h, w) float32 values from 0 to 1; for a mask, another channel that marks shown pixels."""
    values: Tensor = released.values.float() / 255
    return values if released.shown is None else torch.cat([values, released.shown.float()], 1)


# Scores


def score(guesses: Guesses, truth: Tensor, *, reading: str = "") -> Facts:
    """How often a classifier is right on probes of (m,) int64 people; see results.Score."""
    ranks = recognition.identification_ranks(guesses.similarities, guesses.identities, truth)
    identification = recognition.identification(guesses.similarities, guesses.identities, truth)
    judged = {"classifier": guesses.classifier, **asdict(identification), "hits": hits(ranks <= 1, truth)}
    judged["log_rank"] = rank(guesses, truth)
    return {**judged, "reading": reading} if reading else judged


def rank(guesses: Guesses, truth: Tensor) -> list[float]:
    """The log-rank privacy of releases against a classifier, and the ends of its 95% interval."""
    made = log_rank.judge(guesses.similarities, torch.searchsorted(guesses.identities, truth))
    return [made.lrp, made.low, made.high]


def hits(right: Tensor, who: Tensor) -> list[float]:
    """How many of each person are named correctly; of `right` that are shares, their sums. -> (P,).

    `right` is (m,) bool, or shares; `who` is (m,) int64 codes.
    """
    people, rows = who.unique(return_inverse=True)
    counted: list[float] = torch.zeros(len(people)).double().index_add(0, rows, right.double()).tolist()
    return counted


def _exact(guesses: Guesses, table: Table, truth: Tensor) -> Facts:
    """The score of the exact table, with its 95% interval over people: a probe's releases count as one."""
    right = table.success(table.log_posteriors, truth.numpy()).mean(0)
    counted = hits(torch.from_numpy(right), truth)
    low, high = over_people(counted, truth.unique(return_counts=True)[1].tolist())
    share: Facts = {"top1": float(right.mean()), "low": low, "high": high}
    share |= {"in_sample": table.in_sample, "log_rank": rank(guesses, truth)}
    return {"classifier": "table", **share, "hits": counted}


def _believe(guesses: Sequence[Guesses], truth: Tensor) -> Facts:
    """The bits of identity, and the surest namings, by calibrated probabilities; see identity.calibrate."""
    right = torch.searchsorted(guesses[0].identities, truth)
    return dict(identity.by_person([each.similarities.double() for each in guesses], right, truth))


def _verify(compared: Compared, truth: Tensor) -> Facts:
    names, judged = compared.names, []
    rows = torch.arange(len(truth))[:: max(1, len(names) * len(truth) // _PAIRS)]
    same = (truth[rows, None] == names).flatten()
    for similarities in compared.verify:
        made = recognition.verification(similarities(rows).flatten(), same)
        accepted = {f"tar_at_far_{rate}": share for rate, share in made.tar_at_far.items()}
        judged.append({"verification_auc": made.auc, **accepted})
    return max(judged, key=lambda facts: facts["verification_auc"], default={})


def _outcome(scores: list[Facts], names: Tensor, truth: Tensor, *, gallery: int) -> Facts:
    return {
        "scores": scores,
        "chance": recognition.chance(truth),
        "identities": len(names.unique()),
        "gallery": gallery,
        "probes": len(truth),
        "people": truth.unique(return_counts=True)[1].tolist(),
    }


# The adversaries of a study


@dataclass(frozen=True)
class Comparison:
    """The similarities that one attack found for every probe."""

    result: Facts  # see results.Attack
    classifiers: tuple[str, ...]  # names of k ways to compare
    identities: Tensor  # (I,) int64 code of each column, ascending
    similarities: Tensor  # (k, m, I) float16, of each probe to each identity; standardised


def _judge(gallery: Gallery, truth: Tensor, made: Compared, **further: Any) -> Comparison:
    plain = made.guesses if made.table is None else made.guesses[:-1]
    scores = [score(each, truth, reading=made.reading) for each in plain]
    scores += [] if made.table is None else [_exact(made.guesses[-1], made.table, truth)]
    result = _outcome(scores, made.names, truth, gallery=len(gallery.known)) | _verify(made, truth) | further
    result |= {"others": made.others, **_believe(made.guesses, truth)}
    result["trained"] = [
        {"network": name, **asdict(each), "curve": [list(point) for point in each.curve]}
        for name, each in made.trained.items()
    ]
    similarities = torch.stack([standardise(each.similarities).half() for each in made.guesses])
    names = tuple(each.classifier for each in made.guesses)
    return Comparison(result, names, made.guesses[0].identities, similarities)


def compare_values(
    lab: Lab, cell: Cell, ways: Callable[[Gallery], Mapping[str, See]] = readings
) -> Comparison:
    """Compares releases without a network, read in the best of some ways; see ensemble.by_values."""
    gallery, truth = lab.adversaries.gallery(cell)
    outputs = getattr(lab.protection(cell), "outputs", None)
    made = by_values(gallery, ways, copies=lab.config.adversary.copies, outputs=outputs)
    return _judge(gallery, truth, made, learned_from=made.learned_from)


def compare_vectors(lab: Lab, cell: Cell, see: See | None = None) -> Comparison:
    """Compares the numbers of releases, or (N, D) numbers made from them, with those of known people."""
    gallery, truth = lab.adversaries.gallery(cell)
    see = see or [*readings(gallery).values()][-1]  # decoded, if it can be
    made = by_vectors(gallery, see, copies=lab.config.adversary.copies)
    return _judge(gallery, truth, made, faces_found=None)


def _compare_images(lab: Lab, cell: Cell) -> Comparison:
    words, adversaries = ATTACKS[cell.subject], lab.adversaries
    if words.view == "released" and release_kind(cell.protection) not in IMAGES:
        return compare_vectors(lab, cell)
    gallery, truth = adversaries.gallery(cell, faces=True)
    networks = adversaries.recognisers, adversaries.static(cell.seed)
    see = partial(view_release, lab, cell, view=words.view)
    made = by_images(gallery, see, *networks, adaptive=words.adaptive)
    return _judge(gallery, truth, made, faces_found=made.faces)


def _compare_student(lab: Lab, cell: Cell) -> Comparison:
    gallery, truth = lab.adversaries.gallery(cell)
    networks = lab.adversaries.recognisers, lab.adversaries.static(cell.seed)
    made = by_student(gallery, *networks, lab.config.student)
    return _judge(gallery, truth, made, learned_from=len(gallery.others))


def _student_settings(lab: Lab, cell: Cell) -> Facts:
    known, student = values_settings(lab, cell), non_defaults(lab.config.student)
    return lab.adversaries.of_clear() | known | {"student": student, "version": _STUDENT}


def _recogniser_settings(lab: Lab, cell: Cell) -> Facts:
    view = ATTACKS[cell.subject].view
    decided = lab.adversaries.settings(lab.config.adversary)
    if view == "denoised":
        decided |= lab.training_settings()
    return decided


def values_settings(lab: Lab, cell: Cell) -> Facts:
    """The settings that decide the figures of an attack on values."""
    adversary = lab.config.adversary
    known = {name: getattr(adversary, name) for name in ("others", "known", "probes", "copies", "mirrored")}
    return {"sensitive": lab.adversaries.sensitive, "values": _VALUES, **known, "seen": lab.data.digest}


def _method(compare: Callable[[Lab, Cell], Comparison], settings: Callable[[Lab, Cell], Facts]) -> Method:
    """A method whose comparison the first cell that needs it makes, and keeps if the study fuses attacks."""

    def compare_once(lab: Lab, cell: Cell) -> Comparison:
        if not any(ATTACKS[name].fuses for name in attacks_of(lab.config, cell.protection)):
            return compare(lab, cell)

        def make(path: Path) -> None:
            made = compare(lab, cell)
            card = {"kind": "comparison", "classifiers": made.classifiers, "result": made.result}
            tensors = {"identities": made.identities, "similarities": made.similarities}
            artefacts.save(path, tensors, card)

        def read(path: Path) -> Comparison:
            tensors, card = artefacts.load(path, kind="comparison")
            return Comparison(card["result"], tuple(card["classifiers"]), **tensors)

        decided = {"cell": lab.digest(cell, settings(lab, cell))}
        return lab.models.once("comparison", decided, make, read, keep=False)

    return Method(settings, lambda lab, cell: compare_once(lab, cell).result, compared=compare_once)


def _others_of(lab: Lab, cell: Cell) -> Iterator[tuple[Cell, Method]]:
    for name in attacks_of(lab.config, cell.protection):
        if not ATTACKS[name].fuses:
            yield replace(cell, which=(("attack", name),)), method_of(ATTACKS[name])


def _fusion_settings(lab: Lab, cell: Cell) -> Facts:
    of = {cell.subject: each.settings(lab, cell) for cell, each in _others_of(lab, cell)}
    return {"fusion": _FUSION, "of": of}


def _measure_fusion(lab: Lab, cell: Cell) -> Facts:
    """Looks for everybody by all attacks together; see ensemble.choose."""
    compared = {
        other.subject: each.compared(lab, other)
        for other, each in _others_of(lab, cell)
        if each.compared is not None
    }
    if not compared:
        raise ConfigError(
            f"{cell.subject}: no other adversary of the study says how alike people are: give their "
            f"cells.Method `compared`, or leave {cell.subject} out"
        )
    gallery, truth = lab.adversaries.gallery(cell)
    identities = gallery.names.unique()
    guesses = {
        f"{name}: {way}": Guesses(way, identities, similarities)
        for name, made in compared.items()
        for way, similarities in zip(made.classifiers, made.similarities, strict=True)
    }
    fusion, members = choose(guesses, truth, most=MOST)
    scores = [score(fusion, truth)]
    networks = [network for made in compared.values() for network in made.result.get("trained", ())]
    return {
        **_outcome(scores, gallery.names, truth, gallery=len(gallery.known)),
        **_believe([fusion], truth),
        "others": max(made.result["others"] for made in compared.values()),
        "trained": [network for number, network in enumerate(networks) if network not in networks[:number]],
        "members": list(members),
    }


RECOGNISER = _method(_compare_images, _recogniser_settings)
VALUES = _method(compare_values, values_settings)
STUDENT = _method(_compare_student, _student_settings)
SORTED = Method(
    values_settings, lambda lab, cell: compare_values(lab, cell, lambda gallery: {"": _sort}).result
)
FUSED = Method(_fusion_settings, _measure_fusion)
ATTACK = kind_by_methods("attack", "attack", ATTACKS, attacks_of)
