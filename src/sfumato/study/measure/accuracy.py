"""How often learners name the target correctly from releases: few-shot, meta-learned, and classifiers."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sfumato.data.labelled import LabelledImages
from sfumato.episodes import Sampler, Shape
from sfumato.errors import ConfigError, DataError
from sfumato.learn import classifier, code_prototypes, few_shot, meta, of_vectors
from sfumato.learn.classifier import Accuracy as OverImages
from sfumato.learn.code_prototypes import CodePrototypes
from sfumato.learn.gallery import answers_of_episodes, gallery_of_classes
from sfumato.learn.method import classes_of, codes_of
from sfumato.learn.prototypes import Accuracy as OverEpisodes
from sfumato.learn.refusal import Refusal
from sfumato.protect.code import KIND, Code
from sfumato.protect.spec import parse_as
from sfumato.study.cells import Cell, Facts, Method, kind_by_methods, non_defaults
from sfumato.study.lab import lab as labs
from sfumato.study.lab.lab import Lab
from sfumato.study.lab.trained import train_classifier, train_few_shot, train_once
from sfumato.study.vocabulary import IMAGES, LEARNERS, learners_of, release_kind

_OTHERS = ("sensitive", "attributes", "groups")  # settings of the task that decide no accuracy


def _by_groups(lab: Lab) -> Facts:
    return {"by_person": 1} if lab.config.task.groups else {}


def _by_person(lab: Lab, accuracy: OverEpisodes | OverImages) -> Facts:
    """How often the images of each test person are named correctly, and asked, if a study compares groups."""
    if not lab.config.task.groups or accuracy.right is None:
        return {}
    who, right = lab.who, accuracy.right
    counts = torch.zeros(2, int(who.max()) + 1).double().index_add(1, who[: right.shape[1]], right.double())
    return {"hits": counts[0].tolist(), "probes": counts[1].tolist()}


def _over_episodes(lab: Lab, accuracy: OverEpisodes) -> Facts:
    result: Facts = {"accuracy": accuracy.mean, "half_width": accuracy.half_width}
    if accuracy.halves is not None and all(math.isfinite(width) for _, width in accuracy.halves):
        result["halves"] = [
            {"accuracy": mean, "low": max(0.0, mean - width), "high": min(1.0, mean + width)}
            for mean, width in accuracy.halves
        ]
    if accuracy.accepted is not None:
        result["accepted_right"], result["accepted_right_half_width"] = accuracy.accepted
    return result | {"episodes": accuracy.episodes, **_by_person(lab, accuracy)}


def _over_images(lab: Lab, accuracy: OverImages) -> Facts:
    names = ("low", "high", "images", "chance")
    halves = [{"accuracy": mean, "low": low, "high": high} for mean, low, high in accuracy.halves]
    return {
        "accuracy": accuracy.mean,
        **{name: getattr(accuracy, name) for name in names},
        "halves": halves or None,
        **_by_person(lab, accuracy),
    }


def _time(make: Callable[[], Any]) -> tuple[Any, Facts]:
    start = time.perf_counter()
    made = make()
    return made, {"train_seconds": round(time.perf_counter() - start, 1)}


# Few-shot learners


def _task_of_episodes(lab: Lab, *left_out: str) -> Facts:
    task = non_defaults(lab.config.task)
    return {"task": {name: value for name, value in task.items() if name not in (*_OTHERS, *left_out)}}


def _measure_few_shot(lab: Lab, cell: Cell) -> Facts:
    if release_kind(cell.protection) in IMAGES:
        model, seconds = _time(lambda: train_few_shot(lab, cell.protection, cell.seed, cell.subject))
        facts = {
            "trained_episodes": model.card["epochs"] * lab.config.training.episodes_per_epoch,
            "curve": model.card.get("curve", []),
            "precision": model.card["precision"],
            "operations": few_shot.operations(model, lab.test.images.shape[1:]),
        }
        test = partial(run_episodes, lab, cell, model)
    else:
        released = lab.release(cell, lab.asked.images, labs.NUMBERS_TESTED, 1)
        embedded, seconds = _time(lambda: serve_vectors(released))
        facts = {"dimension": released.array.shape[1]}
        test = partial(_serve_episodes, lab, cell, embedded)
    result = _over_episodes(lab, test(lab.config.task.shape))
    for name, shape in lab.config.task.other_shapes.items():
        other = test(shape)
        result |= {f"accuracy_{name}": other.mean, f"half_width_{name}": other.half_width}
    return result | facts | seconds


def run_episodes(lab: Lab, cell: Cell, model: few_shot.FewShotModel, shape: Shape) -> OverEpisodes:
    """The accuracy of a model on test episodes of that shape, released by the cell's protection."""
    task = lab.config.task
    return few_shot.evaluate(
        model,
        lab.asked,
        **asdict(shape),
        episodes=task.episodes,
        target=task.target,
        protection=lab.protection(cell),
        seed=cell.seed,
    )


class Embedded(NamedTuple):
    """A service's view of a release of numbers or bits, without a network of its own."""

    vectors: np.ndarray
    weights: np.ndarray
    codes: CodePrototypes | None
    refusal: Refusal | None


def serve_vectors(released: Any) -> Embedded:
    """As sfumato.serve.models does: codes by their known noise, features unchanged."""
    if released.spec.partition(":")[0] != KIND:
        return Embedded(released.numbers(), np.ones(len(released.array)), None, None)
    code: Code = parse_as(released.spec, {KIND: Code})
    made, _ = code_prototypes.read(code.artefact)
    vectors = made.unbias(released.numbers(), code)
    return Embedded(vectors, np.full(len(vectors), made.weight(code)), made, made.refusal_of(code))


def _serve_episodes(lab: Lab, cell: Cell, embedded: Embedded, shape: Shape) -> OverEpisodes:
    """The accuracy of a service on the episodes that `few_shot.evaluate` draws for the same seed."""
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
    return OverEpisodes.of_answers(answers, rows[:, :, shot:], sampler.shape, cell.protection)


def _check_few_shot(lab: Lab) -> None:
    """Raises DataError if classes have too few images for an episode, and notes those left out."""
    task, training = lab.config.task, lab.config.training
    for name, part, shape in (
        ("training", lab.train, training.episode),
        ("validation", lab.validation, training.validation_episode),
        *(("test", lab.asked, shape) for shape in (task.shape, *task.other_shapes.values())),
    ):
        _check_episodes(lab, name, part, shape)


def _check_episodes(lab: Lab, name: str, part: LabelledImages | None, shape: Shape) -> None:
    if part is None:
        return
    try:
        left_out = Sampler(part.label(lab.config.task.target), shape).left_out
    except DataError as error:
        raise DataError(f"{part.name}, {name} images: {error}") from error
    if left_out:
        few = ", ".join(left_out[:5]) + (", ..." if len(left_out) > 5 else "")
        lab.progress.note(f"{name} images: left out, with too few for an episode: {few}")


# Meta-learning, for the way and shot of the task


def _meta_training(lab: Lab, cell: Cell) -> tuple[meta.MetaConfig, Facts]:
    """How a model is meta-learned, and the settings that decide it, besides its protection and seed."""
    config = replace(lab.config.meta, private=None) if cell.subject == "meta-open" else lab.config.meta
    settings = non_defaults(config)
    if config.private is not None:
        settings["private"] = non_defaults(config.private)
    return config, {**lab.task_settings(), "meta": settings}


def _measure_meta(lab: Lab, cell: Cell) -> Facts:
    # There is no number of trained episodes: in a private run it is drawn, and not released.
    task, protection, at = lab.config.task, lab.protection(cell), (cell.protection, cell.seed)
    config, decided = _meta_training(lab, cell)
    model, seconds = _time(lambda: train_once(lab, "meta", meta, config, decided, *at, target=task.target))
    accuracy = meta.evaluate(
        model,
        lab.asked,
        queries=task.queries,
        episodes=task.episodes,
        target=task.target,
        protection=protection,
        seed=cell.seed,
    )
    promised = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value  # JSON has no infinity
        for name, value in (model.card["privacy"] or {}).items()
        if name != "classes"
    }
    return {
        **_over_episodes(lab, accuracy),
        "trained_steps": model.card["steps"],
        **seconds,
        "precision": model.card["precision"],
        "privacy": {"promise": meta.promise(model.card), **promised},
    }


def _check_meta(lab: Lab) -> None:
    """Makes the checks of meta.train and meta.evaluate, for the first seed."""
    config, target = lab.config.meta, lab.config.task.target
    _check_episodes(lab, "training", lab.train, config.shape)
    if config.private is None:
        return
    trained, tested = (
        {part.label(target).names[code] for code in part.classes(target).tolist()}
        for part in (lab.train, lab.asked)
    )
    if both := sorted(trained & tested):
        raise ConfigError(
            f"meta.private: the {target} {both[0]!r} is in the training and in the test split, and a "
            f"test would answer questions that no budget covers: split the data by {target}, or set "
            "private: null"
        )
    meta.Promise(config, lab.train, target, lab.config.seeds[0]).charge()


# Classifiers that know the classes


def _measure_classifier(lab: Lab, cell: Cell) -> Facts:
    if release_kind(cell.protection) not in IMAGES:
        return _measure_vectors(lab, cell)
    model, seconds = _time(lambda: train_classifier(lab, cell.protection, cell.seed, cell.subject))
    target, protection = lab.config.task.target, lab.protection(cell)
    accuracy = classifier.evaluate(model, lab.asked, target=target, protection=protection, seed=cell.seed)
    card = {"trained_epochs": model.card["epochs"], "precision": model.card["precision"]}
    return _over_images(lab, accuracy) | card | seconds


def _check_classifier(lab: Lab) -> None:
    """Raises DataError if the network cannot be trained, or other splits have other classes."""
    target = lab.config.task.target
    classes = classifier.trainable(lab.train, target, lab.config.classifier.network)
    for part in (lab.validation, lab.asked):
        if part is not None:
            codes_of(part, target, classes, "classifier")


def _measure_vectors(lab: Lab, cell: Cell) -> Facts:
    """The best textbook classifier of the travelled values, chosen on validation images."""
    classes = classes_of(lab.train, lab.config.task.target, "classifier")

    def label(part: LabelledImages, stream: int) -> tuple[Any, Tensor]:
        codes = codes_of(part, lab.config.task.target, classes, "classifier")
        return lab.release(cell, part.images, stream), codes

    def numbers(part: LabelledImages, stream: int) -> tuple[Tensor, Tensor]:
        released, codes = label(part, stream)
        return released.vectors(), codes

    held = None if lab.validation is None else numbers(lab.validation, labs.CLASSIFIER_VALIDATED)
    known, asked = label(lab.train, labs.CLASSIFIER_TRAINED), label(lab.asked, labs.CLASSIFIER_TESTED)
    model, seconds = _time(
        lambda: of_vectors.train(known[0].vectors(), known[1], validation=held, seed=cell.seed)
    )
    tested = asked[0].vectors()
    accuracy = OverImages.of(model.classify(tested), asked[1], cell.protection)
    served = {"served": _serve(serve_vectors(known[0]), known[1], serve_vectors(asked[0]), *asked[1:], cell)}
    return (
        _over_images(lab, accuracy) | served | {"model": model.name, "dimension": tested.shape[1]} | seconds
    )


def _serve(enrolled: Embedded, labels: Tensor, asked: Embedded, truth: Tensor, cell: Cell) -> Facts:
    gallery = gallery_of_classes(enrolled.vectors, labels.numpy(), enrolled.weights, enrolled.codes)
    named = gallery.name(asked.vectors, top=1, refusal=enrolled.refusal)
    guesses = torch.from_numpy(np.array(gallery.labels, np.int64)[named.rows[:, 0]])
    accuracy = OverImages.of(guesses, truth, cell.protection)
    accepted = None
    if named.none_of_these is not None:
        accepted = float(((guesses == truth).numpy() & ~named.none_of_these).mean())
    both = {"accuracy": accuracy.mean, "low": accuracy.low, "high": accuracy.high}
    return both | {"accepted_right": accepted}


# The device's own answer: it releases the name of the class, so that no learner is needed


def _measure_answer(lab: Lab, cell: Cell) -> Facts:
    if lab.config.episodic:
        model = train_few_shot(lab, "none", cell.seed, "clean")
        clear = Cell(cell.kind, "none", cell.seed)
        return _over_episodes(lab, run_episodes(lab, clear, model, lab.config.task.shape))
    released = lab.release(cell, lab.asked.images)
    codes = codes_of(lab.asked, lab.config.task.target, released.classes, "classifier")
    return _over_images(lab, OverImages.of(released.values, codes, cell.protection))


FEW_SHOT = Method(
    lambda lab, cell: _task_of_episodes(lab) | lab.training_settings() | _by_groups(lab),
    _measure_few_shot,
    _check_few_shot,
)
META = Method(
    lambda lab, cell: _task_of_episodes(lab, "other_shots", "other_ways") | _meta_training(lab, cell)[1],
    _measure_meta,
    _check_meta,
)
CLASSIFIER = Method(
    lambda lab, cell: {
        **lab.task_settings(),
        "classifier": non_defaults(lab.config.classifier),
        **_by_groups(lab),
    },
    _measure_classifier,
    _check_classifier,
)
# Checked as the learner of clear images, which gives the answers.
ANSWERER = Method(
    lambda lab, cell: (FEW_SHOT if lab.config.episodic else CLASSIFIER).settings(lab, cell),
    _measure_answer,
    lambda lab: (FEW_SHOT if lab.config.episodic else CLASSIFIER).check(lab),
)
ACCURACY = kind_by_methods("accuracy", "learner", LEARNERS, learners_of)
