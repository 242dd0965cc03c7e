"""Few-shot learners: prototypes of new classes, of embedded images or of the numbers that travelled."""

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from sfumato.data.labelled import LabelledImages
from sfumato.episodes import Sampler, Shape
from sfumato.errors import DataError
from sfumato.learn import code_prototypes, few_shot
from sfumato.learn.code_prototypes import CodePrototypes
from sfumato.learn.gallery import answers_of_episodes
from sfumato.learn.prototypes import Accuracy
from sfumato.learn.refusal import Refusal
from sfumato.protect.code import KIND as CODE
from sfumato.protect.code import Code
from sfumato.protect.spec import parse_as
from sfumato.study.cells import Cell, non_defaults
from sfumato.study.lab.models import with_checkpoint
from sfumato.study.lab.streams import NUMBERS_TESTED
from sfumato.study.protocol import Learner
from sfumato.study.vocabulary import IMAGES, release_kind

if TYPE_CHECKING:
    from sfumato.study.lab.lab import Lab


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the accuracy."""
    task = non_defaults(lab.config.task)
    for name in ("sensitive", "attributes"):
        task.pop(name, None)
    return {"task": task, **lab.training_settings()}


def accuracy(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Trains, and tests on episodes of new classes."""
    if release_kind(cell.protection) not in IMAGES:
        return _of_vectors(lab, cell)
    task = lab.config.task
    start = time.perf_counter()
    learner = cell.subject
    model = train_or_read(lab, cell.protection, cell.seed, learner)
    taken = time.perf_counter() - start
    result = over_episodes(run_episodes(lab, cell, model, task.shape))
    for name, shape in task.other_shapes.items():
        result |= _prefix_keys(name, run_episodes(lab, cell, model, shape))
    return result | {
        "trained_episodes": model.card["epochs"] * lab.config.training.episodes_per_epoch,
        "train_seconds": round(taken, 1),
        "curve": model.card.get("curve", []),
        "precision": model.card["precision"],
        "operations": few_shot.operations(model, lab.test.images.shape[1:]),
    }


def train_or_read(lab: "Lab", spec: str, seed: int, learner: str) -> few_shot.FewShotModel:
    """The classifier of a learner: trained, or read from an earlier cell or run."""
    config = lab.config
    spec = "none" if learner == "clean" else spec
    training = config.training if learner == "denoised" else replace(config.training, denoiser_depth=None)

    make = with_checkpoint(
        lambda checkpoint: few_shot.train(
            lab.train,
            lab.protection_of(spec, seed),
            training,
            target=config.task.target,
            validation=lab.validation,
            seed=seed,
            checkpoint=checkpoint,
            progress=lab.progress.within,
            device=lab.device,
        )
    )
    settings = {"training": non_defaults(training), "spec": spec, "seed": seed}
    settings |= {"target": config.task.target, "classes": config.task.classes, **lab.artefact_digests([spec])}
    return lab.models.once("few-shot", settings, make, lambda path: few_shot.load(path).to(lab.device))


def run_episodes(lab: "Lab", cell: Cell, model: few_shot.FewShotModel, shape: Shape) -> Accuracy:
    """The accuracy of a model on test episodes of that shape, released by the cell's protection."""
    task = lab.config.task
    return few_shot.evaluate(
        model,
        lab.asked,
        way=shape.way,
        shot=shape.shot,
        queries=shape.queries,
        episodes=task.episodes,
        target=task.target,
        protection=lab.protection(cell),
        seed=cell.seed,
    )


def over_episodes(accuracy: Accuracy) -> dict[str, Any]:
    """The accuracy part of a result."""
    result: dict[str, Any] = {"accuracy": accuracy.mean, "half_width": accuracy.half_width}
    if accuracy.halves is not None and all(math.isfinite(width) for _, width in accuracy.halves):
        result["halves"] = [
            {"accuracy": mean, "low": max(0.0, mean - width), "high": min(1.0, mean + width)}
            for mean, width in accuracy.halves
        ]
    if accuracy.accepted is not None:
        result["accepted_right"], result["accepted_right_half_width"] = accuracy.accepted
    return result | {"episodes": accuracy.episodes}


def _prefix_keys(name: str, accuracy: Accuracy) -> dict[str, float]:
    """The part of a result for further test episodes, see Task.other_shapes."""
    return {f"accuracy_{name}": accuracy.mean, f"half_width_{name}": accuracy.half_width}


def _of_vectors(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """A service's accuracy on the travelled numbers; its prototypes of codes know their noise."""
    task, start = lab.config.task, time.perf_counter()
    released = lab.release(cell, lab.asked.images, NUMBERS_TESTED, 1)
    embedded = serve_vectors(released)
    taken = time.perf_counter() - start
    result = over_episodes(_episodes_of(lab, cell, embedded, task.shape))
    for name, shape in task.other_shapes.items():
        result |= _prefix_keys(name, _episodes_of(lab, cell, embedded, shape))
    return result | {"train_seconds": round(taken, 1), "dimension": embedded.vectors.shape[1]}


class Embedded(NamedTuple):
    """A service's view of a release of numbers or bits, without a network of its own."""

    vectors: np.ndarray
    weights: np.ndarray
    codes: CodePrototypes | None
    refusal: Refusal | None


def serve_vectors(released: Any) -> Embedded:
    """As sfumato.serve.models does: codes by their known noise, features unchanged."""
    if released.spec.partition(":")[0] != CODE:
        return Embedded(released.numbers(), np.ones(len(released.array)), None, None)
    code: Code = parse_as(released.spec, {CODE: Code})
    made, _ = code_prototypes.read(code.artefact)
    vectors = made.embed(released.numbers(), code)
    return Embedded(vectors, np.full(len(vectors), made.weight(code)), made, made.refusal_of(code))


def _episodes_of(lab: "Lab", cell: Cell, embedded: Embedded, shape: Shape) -> Accuracy:
    """The accuracy on the episodes that `few_shot.evaluate` draws for the same seed."""
    task = lab.config.task
    sampler, shot = Sampler(lab.asked.label(task.target), shape), shape.shot
    rows = sampler.draw(task.episodes, torch.Generator().manual_seed(cell.seed))
    answers = answers_of_episodes(
        *(embedded.vectors, rows.numpy()),
        shot=shot,
        weights=embedded.weights,
        codes=embedded.codes,
        refusal=embedded.refusal,
    )
    return Accuracy.of_answers(answers, rows[:, :, shot:], sampler.shape, cell.protection)


def check(lab: "Lab") -> None:
    """Raises DataError if classes have too few images for an episode, and notes those left out."""
    task, training = lab.config.task, lab.config.training
    for name, part, shape in (
        ("training", lab.train, training.episode),
        ("validation", lab.validation, training.validation_episode),
        *(("test", lab.asked, shape) for shape in (task.shape, *task.other_shapes.values())),
    ):
        check_episodes(lab, name, part, shape)


def check_episodes(lab: "Lab", name: str, part: LabelledImages | None, shape: Shape) -> None:
    """Checks one split, or None for a missing one."""
    if part is None:
        return
    try:
        left_out = Sampler(part.label(lab.config.task.target), shape).left_out
    except DataError as error:
        raise DataError(f"{part.name}, {name} images: {error}") from error
    if left_out:
        few = ", ".join(left_out[:5]) + (", ..." if len(left_out) > 5 else "")
        lab.progress.note(f"{name} images: left out, with too few for an episode: {few}")


LEARNER = Learner(check, settings, accuracy)
