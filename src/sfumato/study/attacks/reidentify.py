"""Re-identification in a study: whom adversaries know, what they see, and how often they are right."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sfumato.assess import recognition
from sfumato.attack import reidentify
from sfumato.study.attacks.scores import outcome, score
from sfumato.study.cells import Cell, changed
from sfumato.study.learners import few_shot
from sfumato.study.streams import GALLERY, PROBES
from sfumato.study.vocabulary import ATTACKS, IMAGES, Attack, release_kind

if TYPE_CHECKING:
    from sfumato.study.lab import Lab

_TRAINED_FURTHER = ", trained further"
_PAIRS = 20_000_000  # at most so many pairs are verified: more would need gigabytes


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """What decides the figures of an attack."""
    kind = ATTACKS[dict(cell.which)["attack"]]
    decided = lab.adversaries.settings(lab.config.adversary)
    if kind.view == "restored":
        decided["restoration"] = changed(lab.config.restoration)
        if release_kind(cell.protection) not in IMAGES:
            decided["inversion"] = changed(lab.config.inversion)
    if kind.view == "denoised":
        decided |= lab.training_settings()
    return decided


def attack(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Look for everybody on releases, and say how often that works."""
    kind = ATTACKS[dict(cell.which)["attack"]]
    if release_kind(cell.protection) not in IMAGES and kind.view == "released":
        return of_vectors(lab, cell, lambda released: released.vectors())
    return _of_images(lab, cell, kind)


def of_vectors(lab: "Lab", cell: Cell, seen: Callable[[Any], Tensor]) -> dict[str, Any]:
    """Compare the numbers that releases hold, or that somebody makes of them, with those of known people.

    Args:
        lab: of the study.
        cell: its protection and seed count.
        seen: a release -> (N, D) numbers.
    """
    adversaries, copies = lab.adversaries, lab.config.adversary.copies
    gallery, probes = adversaries.dealt(cell.seed)
    people = adversaries.people
    codes = people.label(adversaries.sensitive).codes
    if not lab.protection(cell).draws_noise:
        copies = 1
    known = torch.cat(
        [seen(lab.released(cell, people.images[gallery], GALLERY, number)) for number in range(copies)]
    )
    names, truth = codes[gallery].repeat(copies), codes[probes]
    asked = seen(lab.released(cell, people.images[probes], PROBES))
    scores = [
        score(guesses, truth) for guesses in reidentify.by_numbers(known.double(), names, asked.double())
    ]
    return {**outcome(scores, names, truth, gallery=len(gallery)), "faces_found": None}


def _of_images(lab: "Lab", cell: Cell, kind: Attack) -> dict[str, Any]:
    """Compare what a recogniser makes of images that are seen."""
    adversaries, config = lab.adversaries, lab.config.adversary
    shown = _Shown(lab, cell, kind)
    gallery, probes = adversaries.dealt(cell.seed)
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
    asked, truth = shown(people.images[probes], PROBES), codes[probes]
    faces = adversaries.faces_on(asked)
    known = adversaries.cut(known, landmarks)
    asked = adversaries.cut(asked, None if faces is None else faces.landmarks)
    # Further training may spoil what a recogniser knew: an adversary keeps the better one.
    recognisers = {"": adversaries.static(cell.seed)}
    if kind.adaptive and config.adaptive_steps:
        recognisers[_TRAINED_FURTHER] = adversaries.adaptive(cell, shown)
    scores, verified = [], []
    for suffix, recogniser in recognisers.items():
        embedded, embedded_probes = recogniser.embed(known), recogniser.embed(asked)
        for guesses in reidentify.reidentify(embedded, names, embedded_probes, weight=weight):
            scores.append(score(guesses, truth, words=suffix))
        verified.append(_verified(embedded, names, embedded_probes, truth))
    return {
        **outcome(scores, names, truth, gallery=len(gallery)),
        **max(verified, key=lambda verification: verification["verification_auc"]),
        "faces_found": None if faces is None else faces.rate,
    }


class _Shown:
    """Images of a stream as they are released and then seen. State: those of streams without noise."""

    def __init__(self, lab: "Lab", cell: Cell, kind: Attack) -> None:
        self.noisy = lab.protection(cell).draws_noise
        self._lab, self._cell, self._view = lab, cell, kind.view
        self._before: dict[int, Tensor] = {}

    def __call__(self, images: Tensor, stream: int, number: int = 0) -> Tensor:
        """What is seen of the images of a stream, which are the same each time."""
        if self.noisy or stream not in self._before:
            self._before[stream] = self._seen(images, stream, number)
        return self._before[stream]

    def _seen(self, images: Tensor, stream: int, number: int) -> Tensor:
        lab, cell = self._lab, self._cell
        released = lab.released(cell, images, stream, number)
        match self._view:
            case "denoised":
                model = few_shot.trained(lab, cell.protection, cell.seed, "denoised")
                return model.denoise(released.images())
            case "restored":
                return lab.adversaries.restorer(cell)(released)
            case "shape":
                shapes: Tensor = released.shapes()
                return shapes
            case _:
                shown: Tensor = released.images()
                return shown


def _verified(gallery: Tensor, names: Tensor, probes: Tensor, truth: Tensor) -> dict[str, float]:
    """How well one photograph of the gallery and one probe are told to show the same person or not."""
    step = max(1, len(gallery) * len(probes) // _PAIRS)
    probes, truth = probes[::step], truth[::step]
    cosines, same = (probes @ gallery.T).flatten(), (truth[:, None] == names).flatten()
    return {
        "verification_auc": recognition.area_under_curve(cosines, same),
        "tar_at_far_1e-3": recognition.true_accept_rate(cosines, same, false_accept_rate=1e-3),
    }
