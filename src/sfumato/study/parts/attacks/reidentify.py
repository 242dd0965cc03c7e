"""Re-identification in a study: the people adversaries know, their view, and their success."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sfumato.attack import reidentify
from sfumato.attack.fusion import standardise
from sfumato.study.cells import Cell
from sfumato.study.lab import comparisons
from sfumato.study.lab.comparisons import Comparison
from sfumato.study.lab.streams import GALLERY, PROBES
from sfumato.study.parts.attacks.scores import outcome, score, verify
from sfumato.study.parts.learners.views import view_release
from sfumato.study.protocol import Attack
from sfumato.study.vocabulary import ATTACKS, IMAGES, AttackWords, release_kind

if TYPE_CHECKING:
    from sfumato.study.lab.lab import Lab

_TRAINED_FURTHER = ", trained further"
_BY_DLIB, _BY_BOTH = ", by dlib", ", by both networks"


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the figures of an attack."""
    kind = ATTACKS[cell.subject]
    decided = lab.adversaries.settings(lab.config.adversary)
    if kind.view == "restored":
        decided |= lab.adversaries.undoing(cell.protection)
    if kind.view == "denoised":
        decided |= lab.training_settings()
    return decided


def attack(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Looks for everybody on releases, and counts the successes."""
    return compare_probes(lab, cell).result


def compare_probes(lab: "Lab", cell: Cell) -> Comparison:
    """The similarities for every probe."""
    return comparisons.compare_once(lab, cell, settings(lab, cell), _compare)


def _compare(lab: "Lab", cell: Cell) -> Comparison:
    kind = ATTACKS[cell.subject]
    if release_kind(cell.protection) not in IMAGES and kind.view == "released":
        return of_vectors(lab, cell, lambda released: released.vectors())
    return _of_images(lab, cell, kind)


def of_vectors(lab: "Lab", cell: Cell, seen: Callable[[Any], Tensor]) -> Comparison:
    """Compares the numbers of releases, or numbers made from them, with those of known people.

    Args:
        lab: of the study.
        cell: its protection and seed count.
        seen: a release -> (N, D) numbers.
    """
    adversaries, copies = lab.adversaries, lab.config.adversary.copies
    gallery, rows = adversaries.deal(cell.seed)
    people = adversaries.people
    codes = people.label(adversaries.sensitive).codes
    if not lab.protection(cell).draws_noise:
        copies = 1
    known = torch.cat(
        [seen(lab.release(cell, people.images[gallery], GALLERY, number)) for number in range(copies)]
    )
    names, truth = codes[gallery].repeat(copies), codes[rows]
    asked = seen(lab.release(cell, people.images[rows], PROBES))
    guesses = reidentify.by_numbers(known.double(), names, asked.double())
    scores = [score(made, truth) for made in guesses]
    result = {**outcome(scores, names, truth, gallery=len(gallery)), "faces_found": None}
    return Comparison.of(result, guesses)


def _of_images(lab: "Lab", cell: Cell, kind: AttackWords) -> Comparison:
    """Compares a recogniser's embeddings of the images they see."""
    adversaries, config = lab.adversaries, lab.config.adversary
    shown = _Shown(lab, cell, kind)
    gallery, rows = adversaries.deal(cell.seed)
    people = adversaries.people
    codes = people.label(adversaries.sensitive).codes
    known, names = people.images[gallery], codes[gallery]
    landmarks = adversaries.landmarks_of_people(gallery)
    weight = 1
    if kind.adaptive:
        copies = config.copies
        if not shown.noisy:  # they are equal: one that counts as often
            copies, weight = 1, copies
        known = torch.cat([shown(known, GALLERY, number) for number in range(copies)])
        names = names.repeat(copies)
        landmarks = None if landmarks is None else landmarks.repeat(copies, 1, 1)
    asked, truth = shown(people.images[rows], PROBES), codes[rows]
    faces = adversaries.faces_on(asked)
    by_dlib = None
    if (second := adversaries.second) is not None and landmarks is not None and faces is not None:
        by_dlib = (
            second.embed(second.cut(known, landmarks)),
            second.embed(second.cut(asked, faces.landmarks)),
        )
    known = adversaries.cut(known, landmarks)
    asked = adversaries.cut(asked, None if faces is None else faces.landmarks)
    # Further training may spoil a recogniser: an adversary keeps the better one.
    recognisers = {"": adversaries.static(cell.seed)}
    if kind.adaptive and config.adaptive_steps:
        recognisers[_TRAINED_FURTHER] = adversaries.adaptive(cell, shown)
    embedded = {words: (each.embed(known), each.embed(asked)) for words, each in recognisers.items()}
    if by_dlib is not None:
        embedded[_BY_DLIB] = by_dlib
    named = {
        words: reidentify.reidentify(theirs, names, probes, weight=weight)
        for words, (theirs, probes) in embedded.items()
    }
    if by_dlib is not None:
        named[_BY_BOTH] = tuple(map(_add, named[""], named[_BY_DLIB]))
    guesses = [replace(one, classifier=one.classifier + end) for end, made in named.items() for one in made]
    pairs = [_verify(theirs, names, probes, truth) for theirs, probes in embedded.values()]
    result = {
        **outcome([score(made, truth) for made in guesses], names, truth, gallery=len(gallery)),
        **max(pairs, key=lambda judged: judged["verification_auc"]),
        "faces_found": None if faces is None else faces.rate,
        "trained": _list_trainings(lab, cell, kind, recognisers),
    }
    return Comparison.of(result, guesses)


def _list_trainings(
    lab: "Lab", cell: Cell, kind: AttackWords, recognisers: dict[str, reidentify.Recogniser]
) -> list[dict[str, Any]]:
    """The trained networks of an attack; see kinds.attack.Trained."""
    networks = {f"recogniser{words}": recogniser.trained for words, recogniser in recognisers.items()}
    if kind.view == "restored":
        networks["restorer"] = lab.adversaries.undoer(cell).trained
    return [
        {"network": name, **asdict(made), "curve": [list(point) for point in made.curve]}
        for name, made in networks.items()
        if made is not None
    ]


def _add(one: reidentify.Guesses, other: reidentify.Guesses) -> reidentify.Guesses:
    """Both networks together: the sum of their similarities, which are on one scale."""
    return replace(one, similarities=standardise(one.similarities) + standardise(other.similarities))


def _verify(gallery: Tensor, names: Tensor, probes: Tensor, truth: Tensor) -> dict[str, float]:
    return verify(lambda rows: probes[rows] @ gallery.T, names, truth)


class _Shown:
    """Images of a stream as they are released and then seen. State: those of streams without noise."""

    def __init__(self, lab: "Lab", cell: Cell, kind: AttackWords) -> None:
        self.noisy = lab.protection(cell).draws_noise
        self._lab, self._cell, self._view = lab, cell, kind.view
        self._before: dict[int, Tensor] = {}

    def __call__(self, images: Tensor, stream: int, number: int = 0) -> Tensor:
        """The view of the images of a stream, the same each time."""
        if self.noisy or stream not in self._before:
            release = self._lab.release(self._cell, images, stream, number)
            self._before[stream] = view_release(self._lab, self._cell, release, self._view)
        return self._before[stream]


ATTACK = Attack(settings, attack, compare_probes)
