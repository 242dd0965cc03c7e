"""Attribute inference in a study: an adversary learns it from some people, and infers it for others.

They use textbook classifiers of the values that travelled, the best on held-out people; and, for images, a
network that learns the attribute from releases as the study's own classifiers learn the task.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sfumato.attack.saturation import hold_out
from sfumato.base.proportions import over_people
from sfumato.data.labelled import LabelledImages
from sfumato.errors import ConfigError, DataError
from sfumato.learn import classifier, of_vectors
from sfumato.study.cells import Cell, non_defaults
from sfumato.study.lab.models import with_checkpoint
from sfumato.study.lab.streams import OTHERS, PROBES
from sfumato.study.parts.attacks.reduced import Reduced
from sfumato.study.parts.attacks.scores import hits
from sfumato.study.vocabulary import IMAGES, release_kind

if TYPE_CHECKING:
    from sfumato.study.lab.lab import Lab

_VERSION = 1  # raised when the same adversary would infer more or less
_LEARNED = 10_000  # releases at most that classifiers of values learn from
_HELD_OUT = 256  # photographs of people who choose among classifiers, or say when to stop


def check(lab: "Lab") -> None:
    """Raises an error if an attribute of the study cannot be learned, or its bound cannot be kept at all."""
    for label in lab.config.task.attributes:
        codes = lab.test.label(label).codes
        known = lab.adversaries.others.label(label).codes
        if not torch.isin(codes, known).all() or len(codes.unique()) < 2:
            raise DataError(
                f"sensitive: {label}: an attribute has two classes or more on test images, and training "
                f"images of other people have all of these: split the data by {lab.adversaries.sensitive}, "
                f"or leave {label} out"
            )
        guessing = codes.bincount().max().item() / len(codes)
        if (bound := lab.config.recommend.inference_at_most[label]) <= guessing:
            raise ConfigError(
                f"inference_at_most: {label}: {bound:g}: to name the commonest class is right in "
                f"{guessing:.3f} of the cases, and no protection changes that: set a bound above it"
            )


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the figures."""
    config = lab.config
    decided: dict[str, Any] = {"inference": _VERSION, "sensitive": config.task.sensitive}
    if release_kind(cell.protection) in IMAGES:
        decided["classifier"] = non_defaults(config.classifier)
    return {**decided, "copies": config.adversary.copies}


def attack(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Infers the attribute of a cell on all test images; see kinds.inference.Result."""
    label = cell.subject
    codes, who = lab.test.label(label).codes, lab.test.label(lab.adversaries.sensitive).codes
    others = lab.adversaries.others
    held = hold_out(others.label(lab.adversaries.sensitive).codes, most=_HELD_OUT, seed=cell.seed)
    chosen_by = others.rows(held.nonzero().flatten()) if held.any() else None
    others = others.rows((~held).nonzero().flatten())
    guesses = {"values": _by_values(lab, cell, label, others, chosen_by)}
    if release_kind(cell.protection) in IMAGES:
        guesses["network"] = _by_network(lab, cell, label, others, chosen_by)
    photographs = who.unique(return_counts=True)[1].tolist()
    scores = []
    for name, guessed in guesses.items():
        counted = hits(guessed == codes, who)
        (low, high), top1 = over_people(counted, photographs), sum(counted) / len(codes)
        scores.append({"classifier": name, "top1": top1, "low": low, "high": high, "hits": counted})
    counts = codes.unique(return_counts=True)[1]
    return {
        "scores": scores,
        "chance": counts.max().item() / len(codes),
        "identities": len(counts),
        "probes": len(codes),
        "people": photographs,
    }


def _by_values(
    lab: "Lab", cell: Cell, label: str, others: LabelledImages, chosen_by: LabelledImages | None
) -> Tensor:
    """(N,) classes of the test images, by the textbook classifier that is best on `chosen_by`."""
    known = others.rows(lab.shuffle(len(others), cell.seed)[:_LEARNED])
    copies = lab.config.adversary.copies if lab.protection(cell).draws_noise else 1
    copies = max(1, min(copies, _LEARNED // len(known)))
    values = torch.cat(
        [lab.release(cell, known.images, OTHERS, number).vectors() for number in range(copies)]
    )
    reduce, validation = Reduced(values), None
    if chosen_by is not None:
        released = lab.release(cell, chosen_by.images, OTHERS)
        validation = reduce(released.vectors()), chosen_by.label(label).codes
    codes = known.label(label).codes.repeat(copies)
    model = of_vectors.train(reduce(values), codes, validation=validation, seed=cell.seed)
    return model.classify(reduce(lab.release(cell, lab.test.images, PROBES).vectors()))


def _by_network(
    lab: "Lab", cell: Cell, label: str, others: LabelledImages, chosen_by: LabelledImages | None
) -> Tensor:
    """(N,) classes of the test images, by a network that learned from releases."""
    make = with_checkpoint(
        lambda checkpoint: classifier.train(
            others,
            lab.protection(cell),
            lab.config.classifier,
            target=label,
            validation=chosen_by,
            seed=cell.seed,
            checkpoint=checkpoint,
            progress=lab.progress.within,
            device=lab.device,
        )
    )
    spec = cell.protection
    decided = {
        **settings(lab, cell),
        "label": label,
        "spec": spec,
        "seed": cell.seed,
        **lab.artefact_digests([spec]),
    }
    model = lab.models.once("inferrer", decided, make, lambda path: classifier.load(path).to(lab.device))
    names = lab.test.label(label).names
    codes = torch.tensor([names.index(name) for name in model.classes])
    return codes[model.classify(lab.release(cell, lab.test.images, PROBES).images())]
