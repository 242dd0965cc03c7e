"""Ordinary classifiers in a study: of images by a network, of numbers by textbook classifiers."""

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sfumato.learn import classifier, of_vectors
from sfumato.learn.gallery import gallery_of_classes
from sfumato.learn.method import classes_of, codes_of
from sfumato.study.cells import Cell, non_defaults
from sfumato.study.lab.models import with_checkpoint
from sfumato.study.lab.streams import CLASSIFIER_TESTED, CLASSIFIER_TRAINED, CLASSIFIER_VALIDATED
from sfumato.study.parts.learners import few_shot
from sfumato.study.protocol import Learner
from sfumato.study.vocabulary import IMAGES, LEARNERS, release_kind

if TYPE_CHECKING:
    from sfumato.study.lab.lab import Lab


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the accuracy."""
    task = lab.config.task
    return {"target": task.target, "classes": task.classes, "classifier": non_defaults(lab.config.classifier)}


def accuracy(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Trains, and tests on every test image."""
    if release_kind(cell.protection) not in IMAGES:
        return _of_vectors(lab, cell)
    start = time.perf_counter()
    model = train_or_read(lab, cell.protection, cell.seed, cell.subject)
    taken = time.perf_counter() - start
    accuracy = classifier.evaluate(
        model,
        lab.asked,
        target=lab.config.task.target,
        protection=lab.protection(cell),
        seed=cell.seed,
    )
    return over_images(accuracy) | {
        "trained_epochs": model.card["epochs"],
        "train_seconds": round(taken, 1),
        "precision": model.card["precision"],
    }


def train_or_read(lab: "Lab", spec: str, seed: int, learner: str) -> classifier.ClassifierModel:
    """The classifier of a learner: trained, or read from an earlier cell or run."""
    config, kind = lab.config, LEARNERS[learner].trained_on
    spec = "none" if kind == "clear" else spec
    shapes = kind == "shape"

    make = with_checkpoint(
        lambda checkpoint: classifier.train(
            lab.train,
            lab.protection_of(spec, seed),
            config.classifier,
            target=config.task.target,
            shapes=shapes,
            validation=lab.validation,
            seed=seed,
            checkpoint=checkpoint,
            progress=lab.progress.within,
            device=lab.device,
        )
    )
    task = config.task
    settings: dict[str, Any] = {"target": task.target, "classes": task.classes}
    settings |= {"classifier": non_defaults(config.classifier)}
    settings |= {"spec": spec, "shapes": shapes, "seed": seed, **lab.artefact_digests([spec])}
    return lab.models.once("classifier", settings, make, lambda path: classifier.load(path).to(lab.device))


def over_images(accuracy: classifier.Accuracy) -> dict[str, Any]:
    """The accuracy part of a result."""
    return {
        "accuracy": accuracy.mean,
        "low": accuracy.low,
        "high": accuracy.high,
        "images": accuracy.images,
        "chance": accuracy.chance,
        "halves": [{"accuracy": mean, "low": low, "high": high} for mean, low, high in accuracy.halves]
        or None,
    }


def check(lab: "Lab") -> None:
    """Raises DataError if the network cannot be trained, or other splits have other classes."""
    target = lab.config.task.target
    classes = classifier.trainable(lab.train, target, lab.config.classifier.network)
    for part in (lab.validation, lab.asked):
        if part is not None:
            codes_of(part, target, classes, "classifier")


def _of_vectors(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The best textbook classifier of the travelled values, chosen on validation images."""
    target, start = lab.config.task.target, time.perf_counter()
    classes = classes_of(lab.train, target, "classifier")

    def label(part: Any, stream: int) -> tuple[Any, Any]:
        codes = codes_of(part, target, classes, "classifier")
        return lab.release(cell, part.images, stream).vectors(), codes

    held = None if lab.validation is None else label(lab.validation, CLASSIFIER_VALIDATED)
    model = of_vectors.train(*label(lab.train, CLASSIFIER_TRAINED), validation=held, seed=cell.seed)
    taken = time.perf_counter() - start
    tested, codes = label(lab.asked, CLASSIFIER_TESTED)
    accuracy = classifier.Accuracy.of(model.classify(tested), codes, cell.protection)
    return over_images(accuracy) | {
        "served": _serve(lab, cell, classes),
        "model": model.name,
        "dimension": tested.shape[1],
        "train_seconds": round(taken, 1),
    }


def _serve(lab: "Lab", cell: Cell, classes: Any) -> dict[str, Any]:
    """A service's answers on the test images, with the training images enrolled."""
    target = lab.config.task.target

    def embed(part: Any, stream: int) -> tuple[few_shot.Embedded, np.ndarray]:
        codes = codes_of(part, target, classes, "classifier").numpy()
        return few_shot.serve_vectors(lab.release(cell, part.images, stream)), codes

    enrolled, labels = embed(lab.train, CLASSIFIER_TRAINED)
    asked, truth = embed(lab.asked, CLASSIFIER_TESTED)
    gallery = gallery_of_classes(enrolled.vectors, labels, enrolled.weights, enrolled.codes)
    named = gallery.name(asked.vectors, top=1, refusal=enrolled.refusal)
    guesses = torch.from_numpy(np.array(gallery.labels, np.int64)[named.rows[:, 0]])
    accuracy = classifier.Accuracy.of(guesses, torch.from_numpy(truth), cell.protection)
    right = guesses.numpy() == truth
    accepted = None if named.none_of_these is None else float((right & ~named.none_of_these).mean())
    return {
        **{"accuracy": accuracy.mean, "low": accuracy.low, "high": accuracy.high},
        "accepted_right": accepted,
    }


LEARNER = Learner(check, settings, accuracy)
