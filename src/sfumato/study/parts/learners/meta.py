"""Meta-learning in a study: for the way and shot of the task."""

import math
import time
from typing import TYPE_CHECKING, Any

from sfumato.errors import ConfigError
from sfumato.learn import meta
from sfumato.study.cells import Cell, non_defaults
from sfumato.study.lab.models import with_checkpoint
from sfumato.study.parts.learners.few_shot import check_episodes, over_episodes
from sfumato.study.protocol import Learner

if TYPE_CHECKING:
    from sfumato.study.lab.lab import Lab


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the accuracy."""
    task = non_defaults(lab.config.task)
    for name in ("sensitive", "attributes", "other_shots", "other_ways"):
        task.pop(name, None)
    return {"task": task, **_training(lab)}


def accuracy(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Trains, and tests on episodes.

    There is no number of trained episodes: in a private run it is drawn, and not released.
    """
    task = lab.config.task
    start = time.perf_counter()
    model = _train_or_read(lab, cell)
    taken = time.perf_counter() - start
    accuracy = meta.evaluate(
        model,
        lab.asked,
        queries=task.queries,
        episodes=task.episodes,
        target=task.target,
        protection=lab.protection(cell),
        seed=cell.seed,
    )
    promised = {k: _finite(v) for k, v in (model.card["privacy"] or {}).items() if k != "classes"}
    return over_episodes(accuracy) | {
        "trained_steps": model.card["steps"],
        "train_seconds": round(taken, 1),
        "precision": model.card["precision"],
        "privacy": {"promise": meta.promise(model.card), **promised},
    }


def check(lab: "Lab") -> None:
    """Makes the checks of meta.train and meta.evaluate, for the first seed.

    They need a known policy, a budget with room, and a test on classes that no pool has.
    """
    check_episodes(lab, "training", lab.train, lab.config.meta.shape)
    private = lab.config.meta.private
    if private is None:
        return
    config, target = lab.config.meta, lab.config.task.target
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


def _train_or_read(lab: "Lab", cell: Cell) -> meta.MetaModel:
    make = with_checkpoint(
        lambda checkpoint: meta.train(
            lab.train,
            lab.protection(cell),
            lab.config.meta,
            target=lab.config.task.target,
            seed=cell.seed,
            checkpoint=checkpoint,
            progress=lab.progress.within,
            device=lab.device,
        )
    )
    settings = {**_training(lab), "spec": cell.protection, "seed": cell.seed}
    return lab.models.once("meta", settings | lab.artefact_digests([cell.protection]), make, meta.load)


def _training(lab: "Lab") -> dict[str, Any]:
    """The settings of the study that decide a meta-learned model, besides its protection and seed."""
    task, config = lab.config.task, lab.config.meta
    settings = non_defaults(config)
    if config.private is not None:
        settings["private"] = non_defaults(config.private)
    return {"target": task.target, "classes": task.classes, "meta": settings}


def _finite(value: Any) -> Any:
    """None for an infinite bound: JSON has no word for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


LEARNER = Learner(check, settings, accuracy)
