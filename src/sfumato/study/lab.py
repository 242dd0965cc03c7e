"""What the cells of a study need, and how each is measured.

What several cells need (trained classifiers, the static adversary) is made once and kept beside the
records, so that stopping loses at most one epoch of training.
"""

import base64
import math
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import sfumato
from sfumato import images
from sfumato.assess import similarity
from sfumato.data.labelled import LabelledImages
from sfumato.dp import accounting, clipping
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler, Shape
from sfumato.errors import ConfigError, DataError, did_you_mean, needs_extra
from sfumato.learn import classifier, epochs, few_shot, meta, task_pool
from sfumato.precision import resolve
from sfumato.protect import parse
from sfumato.study.adversaries import Adversaries
from sfumato.study.grid import ATTACKS, CLASSIFIERS, Cell, StudyConfig
from sfumato.study.models import RESULTS, Models, with_checkpoint
from sfumato.study.records import changed, digest_of, source_of
from sfumato.study.streams import MEASURED, Releases, artefacts_of

_MEASURED_IMAGES = 100  # the paper measures SSIM over 100 test images


@dataclass(frozen=True)
class Progress:
    """What a running study tells.

    Attributes:
        cell: called before each cell with its words, and the numbers of cells done and in all.
        within: called during training with the numbers of steps done and planned.
        note: called with a sentence that the user should read.
    """

    cell: Callable[[str, int, int], None] = lambda words, done, total: None
    within: Callable[[int, int], None] = lambda done, total: None
    note: Callable[[str], None] = lambda words: None


class Lab:
    """The data of one study, and what its cells share. State: the classifiers and adversaries made so far."""

    def __init__(
        self, config: StudyConfig, loaded: LabelledImages, directory: Path, progress: Progress
    ) -> None:
        self._config = config
        self._models = Models(directory / "models", loaded.digest)
        self._progress = progress
        self._data = loaded
        self._train = self._tasked("train")
        self._validation = self._tasked("validation") if "validation" in self._data.splits else None
        self._test, self._asked = self._data.split("test"), self._tasked("test")
        self._releases = Releases()
        self._adversaries = Adversaries(config, loaded, self._models, self._releases, progress.within)
        self._check()

    def _tasked(self, split: str) -> LabelledImages:
        """The images of a split that belong to the classes of the task."""
        part, task = self._data.split(split), self._config.task
        if task.classes is None:
            return part
        label = part.label(task.target)
        for name in task.classes:
            if name not in label.names:
                raise ConfigError(
                    f"task.classes: no {task.target} {name!r}: {did_you_mean(name, label.names)}"
                )
        wanted = torch.tensor([label.names.index(name) for name in task.classes])
        return part.rows(torch.isin(label.codes, wanted).nonzero().flatten())

    def _check(self) -> None:
        """Fail now rather than after an hour: labels, class sizes, cells larger than the images."""
        task, training = self._config.task, self._config.training
        shapes: list[tuple[str, LabelledImages | None, Shape]] = []
        if self._config.episodic:
            shapes = [
                ("training", self._train, training.episode),
                ("validation", self._validation, training.validation_episode),
                ("test", self._asked, task.shape),
            ]
        if "meta" in self._config.learners:
            shapes.append(("training", self._train, self._config.meta.shape))
        for name, part, shape in shapes:
            if part is None:
                continue
            try:
                left_out = Sampler(part.label(task.target), shape).left_out
            except DataError as error:
                raise DataError(f"{self._data.name}, {name} images: {error}") from error
            if left_out:
                few = ", ".join(left_out[:5]) + (", ..." if len(left_out) > 5 else "")
                self._progress.note(f"{name} images: left out, with too few for an episode: {few}")
        if any(learner in CLASSIFIERS for learner in self._config.learners):
            classes = classifier.trainable(self._train, task.target, self._config.classifier.network)
            for part in (self._validation, self._asked):
                if part is not None:
                    epochs.codes_of(part, task.target, classes, "classifier")
        if task.sensitive is not None and (self._config.attacks or self._faces):
            self._adversaries.check()
        for spec in self._config.specs:
            parse(spec).release(self._test.images[:1], seeded_noise(0))
        if "meta" in self._config.learners and self._config.meta.private is not None:
            self._check_promise(self._config.meta.private)

    def _check_promise(self, private: meta.Private) -> None:
        """Ask what meta.train and meta.evaluate will ask, of the first seed.

        That is a policy that is known, a budget with room, and a test on classes that no pool has.
        """
        config, target = self._config.meta, self._config.task.target
        label = self._train.label(target)
        trained, tested = (
            {part.label(target).names[code] for code in part.classes(target).tolist()}
            for part in (self._train, self._asked)
        )
        if both := sorted(trained & tested):
            raise ConfigError(
                f"meta.private: the {target} {both[0]!r} is in the training and in the test split, and a "
                f"test would answer questions that no budget covers: split the data by {target}, or set "
                "private: null"
            )
        # A first norm that is yet to be found may be any.
        start = {"start": 1.0} if private.seeks_start else {}
        clipping.parse(private.clipping, {**private.settings, **start})
        tasks, seed = private.pool_tasks, self._config.seeds[0]
        pool = (
            task_pool.disjoint_pool(label, config.shape, seed=seed)
            if tasks is None
            else task_pool.overlapping_pool(label, config.shape, tasks=tasks, seed=seed)
        )
        account = accounting.Accountant(private.epsilon, private.delta, len(pool))
        if private.start_noise is not None:
            account.step(private.start_noise, 1.0)
        noise, rate = private.noise_multiplier, config.tasks / len(pool)
        if noise is None:
            spent = account.stretches
            noise = accounting.calibrate(private.epsilon, private.delta, rate, config.steps, spent)
        account.step(noise, rate)

    # What decides a result, and so its digest

    def digest(self, cell: Cell) -> str:
        """Of all that decides the result of a cell; the name of its record."""
        config = self._config
        task = changed(config.task)
        shared = {"results": RESULTS, "cell": asdict(cell), "data": self._data.digest}
        shared |= artefacts_of(config.specs if cell.kind == "transfer" else [cell.protection])
        sensitive = task.pop("sensitive", None)
        which = dict(cell.which)
        training: dict[str, Any] = {"target": config.task.target, "training": changed(config.training)}
        training["classes"] = config.task.classes
        match cell.kind:
            case "accuracy" if which["learner"] == "meta":
                del task["other_shots"]
                return digest_of({**shared, "task": task, **self._meta_settings()})
            case "accuracy" if which["learner"] in CLASSIFIERS:
                return digest_of({**shared, **self._classifier_settings()})
            case "accuracy":
                return digest_of({**shared, "task": task, **training})
            case "attack":
                shared |= self._adversaries.settings(which["attack"])
                if ATTACKS[which["attack"]].view == "denoised":
                    shared |= training
                return digest_of(shared)
            case "similarity":
                shared |= {"measures": config.measures}
                if self._faces:
                    shared |= {"faces": self._adversaries.recogniser()}
                if which["view"] == "denoised":
                    shared |= training
                elif which["view"] == "restored":
                    shared |= {"sensitive": sensitive, "restoration": changed(config.restoration)}
                return digest_of(shared)
            case "transfer":
                return digest_of({**shared, "task": task, **training, "specs": config.specs})
            case _:
                shared |= {"pictures": config.pictures, "views": config.views}
                if cell.kind == "pictures" and self._restores(cell):
                    shared |= {"sensitive": sensitive, "restoration": changed(config.restoration)}
                return digest_of({**shared, **training})

    def _meta_settings(self) -> dict[str, Any]:
        """All of the study that decides a meta-learned model, beside its protection and seed."""
        task, config = self._config.task, self._config.meta
        settings = changed(config)
        if config.private is not None:
            settings["private"] = changed(config.private)
        return {"target": task.target, "classes": task.classes, "meta": settings}

    def _classifier_settings(self) -> dict[str, Any]:
        """All of the study that decides an ordinary classifier, beside its protection and seed."""
        task, config = self._config.task, self._config.classifier
        return {"target": task.target, "classes": task.classes, "classifier": changed(config)}

    @property
    def _faces(self) -> bool:
        """Whether it is measured how alike faces are."""
        return "face-similarity" in self._config.measures

    def description(self, cells: list[dict[str, Any]]) -> dict[str, Any]:
        """What study.json says: the settings, the data and the cells."""
        config = self._config
        task = asdict(config.task)
        learned = {"meta": asdict(config.meta)} if "meta" in config.learners else {}
        if any(learner in CLASSIFIERS for learner in config.learners):
            learned["classifier"] = asdict(config.classifier)
        return {
            "name": config.name,
            "title": config.title or config.name,
            "data": {
                "source": source_of(self._data.name),
                "images": len(self._data),
                "shape": list(self._data.images.shape[1:]),
                "digest": self._data.digest,
                "splits": {name: len(rows) for name, rows in self._data.splits.items()},
            },
            "task": {**task, "secret_is_task": self._secret_is_task()},
            "protections": config.specs,
            "learners": config.learners,
            "attacks": config.attacks if config.task.sensitive is not None else [],
            "measures": config.measures,
            "recommend": asdict(config.recommend),
            "seeds": config.seeds,
            "training": asdict(config.training),
            **learned,
            "adversary": asdict(config.adversary),
            "restoration": asdict(config.restoration),
            "versions": versions(),
            "cells": cells,
        }

    def _secret_is_task(self) -> bool:
        """Whether the target label tells the sensitive one, on the test images.

        Then who does what the service does names the secret. The other way round, as where people have one
        gender each, the task tells little of who they are.
        """
        task = self._config.task
        if task.sensitive is None:
            return False
        pairs = torch.stack([self._asked.label(task.target).codes, self._asked.label(task.sensitive).codes])
        return int(pairs.unique(dim=1).shape[1]) == len(pairs[0].unique())

    # Cells

    def measure(self, cell: Cell) -> dict[str, Any]:
        """The result of a cell. Raises BusyError where another process is making what it needs."""
        which = dict(cell.which)
        match cell.kind:
            case "accuracy" if which["learner"] == "meta":
                return self._meta_accuracy(cell)
            case "accuracy" if which["learner"] in CLASSIFIERS:
                return self._classifier_accuracy(cell, which["learner"])
            case "accuracy":
                return self._accuracy(cell, which["learner"])
            case "attack":
                return self._adversaries.attack(cell, which["attack"], self._denoiser(cell))
            case "similarity":
                return self._similarity(cell, which["view"])
            case "embeddings":
                return self._embeddings(cell, which["learner"])
            case "transfer":
                return self._transfer(cell, which["learner"])
            case _:
                return self._pictures(cell)

    def _accuracy(self, cell: Cell, learner: str) -> dict[str, Any]:
        task = self._config.task
        start = time.perf_counter()
        model = self._model(cell, learner)
        taken = time.perf_counter() - start
        accuracy = self._tested(cell, model, task.shot)
        others: dict[str, float] = {}
        for shot in task.other_shots:
            other = self._tested(cell, model, shot)
            others |= {f"accuracy_{shot}_shot": other.mean, f"half_width_{shot}_shot": other.half_width}
        return {
            "accuracy": accuracy.mean,
            "half_width": accuracy.half_width,
            "episodes": accuracy.episodes,
            "trained_episodes": model.card["epochs"] * self._config.training.episodes_per_epoch,
            "train_seconds": round(taken, 1),
            "precision": model.card["precision"],
            "operations": few_shot.operations(model, self._test.images.shape[1:]),
            **others,
        }

    def _meta_accuracy(self, cell: Cell) -> dict[str, Any]:
        """Of the way and shot that the model is for.

        There is no number of trained episodes: in a private run it is drawn, and not released.
        """
        task = self._config.task
        start = time.perf_counter()
        model = self._meta_model(cell)
        taken = time.perf_counter() - start
        accuracy = meta.evaluate(
            model,
            self._asked,
            queries=task.queries,
            episodes=task.episodes,
            target=task.target,
            protection=self._releases.protection(cell.protection),
            seed=cell.seed,
        )
        promised = {k: _finite(v) for k, v in (model.card["privacy"] or {}).items() if k != "classes"}
        return {
            "accuracy": accuracy.mean,
            "half_width": accuracy.half_width,
            "episodes": accuracy.episodes,
            "trained_steps": model.card["steps"],
            "train_seconds": round(taken, 1),
            "precision": resolve(self._config.meta.precision),
            "privacy": {"promise": meta.promise(model.card), **promised},
        }

    def _classifier_accuracy(self, cell: Cell, learner: str) -> dict[str, Any]:
        start = time.perf_counter()
        model = self._classifier(cell, learner)
        taken = time.perf_counter() - start
        accuracy = classifier.evaluate(
            model,
            self._asked,
            target=self._config.task.target,
            protection=self._releases.protection(cell.protection),
            seed=cell.seed,
        )
        return {
            "accuracy": accuracy.mean,
            "low": accuracy.low,
            "high": accuracy.high,
            "images": accuracy.images,
            "chance": accuracy.chance,
            "trained_epochs": model.card["epochs"],
            "train_seconds": round(taken, 1),
            "precision": model.card["precision"],
        }

    def _tested(self, cell: Cell, model: few_shot.FewShotModel, shot: int) -> few_shot.Accuracy:
        task = self._config.task
        return few_shot.evaluate(
            model,
            self._asked,
            way=task.way,
            shot=shot,
            queries=task.queries,
            episodes=task.episodes,
            target=task.target,
            protection=self._releases.protection(cell.protection),
            seed=cell.seed,
        )

    def _transfer(self, cell: Cell, learner: str) -> dict[str, Any]:
        """Query the model of every other setting with this one; support images have this one as well."""
        trained = {}
        for spec in self._config.specs:
            model = self._model(replace(cell, protection=spec), "clean" if spec == "none" else learner)
            accuracy = self._tested(cell, model, self._config.task.shot)
            trained[spec] = {"accuracy": accuracy.mean, "half_width": accuracy.half_width}
        return {"trained": trained}

    def _similarity(self, cell: Cell, view: str) -> dict[str, Any]:
        rows = _shuffled(len(self._test), cell.seed)[:_MEASURED_IMAGES]
        clean = self._test.images[rows]
        released = self._releases.of(cell, clean, MEASURED)
        shown = released.images()
        if view == "denoised":
            shown = self._denoiser(cell)(shown)
        if view == "restored":
            shown = self._adversaries.restorer(cell).restore(shown)
        functions = {"ssim": similarity.ssim, "psnr": similarity.psnr, "mse": similarity.mse}
        result: dict[str, Any] = {"images": len(rows)}
        for measure in self._config.measures:
            if measure == "face-similarity":
                alike, strangers = self._adversaries.face_similarity(self._test.rows(rows), shown, cell.seed)
                result |= {measure: alike, "face-similarity_of_two": strangers}
                continue
            mean = functions[measure](images.to_float(clean), images.to_float(shown)).mean().item()
            result[measure] = mean if np.isfinite(mean) else None
        if view == "released":
            c, h, w = clean.shape[1:]
            guarantee = parse(cell.protection).guarantee((c, h, w))
            result["bytes_per_image"] = released.bytes_per_image
            result["guarantee"] = None
            if guarantee is not None:
                result["guarantee"] = {"text": str(guarantee), **asdict(guarantee)}
        return result

    def _embeddings(self, cell: Cell, learner: str) -> dict[str, Any]:
        with needs_extra("t-SNE", "study"):
            from sklearn.manifold import TSNE

        label = self._asked.label(self._config.task.target)
        order = _shuffled(len(self._asked), cell.seed)
        classes = label.codes[order].unique_consecutive().tolist()
        chosen = list(dict.fromkeys(classes))[:5]
        rows = torch.cat([order[label.codes[order] == code][:20] for code in chosen])
        released = self._releases.of(cell, self._asked.images[rows], MEASURED).images()
        vectors = self._model(cell, learner).embed(released).numpy()
        points = TSNE(perplexity=min(20, len(rows) - 1), init="pca", random_state=cell.seed).fit_transform(
            vectors
        )
        return {
            "points": [[round(float(x), 3), round(float(y), 3)] for x, y in points],
            "classes": [label.names[code] for code in label.codes[rows].tolist()],
        }

    def _pictures(self, cell: Cell) -> dict[str, Any]:
        clean = self._test.images[_shuffled(len(self._test), cell.seed)[: self._config.pictures]]
        released = self._releases.of(cell, clean, MEASURED).images()
        denoised = restored = None
        if "denoised" in self._config.learners and cell.protection != "none":
            denoised = _as_uris(self._denoiser(cell)(released))
        if self._restores(cell):
            restored = _as_uris(self._adversaries.restorer(cell).restore(released))
        return {
            "original": _as_uris(clean),
            "released": _as_uris(released),
            "denoised": denoised,
            "restored": restored,
        }

    def _restores(self, cell: Cell) -> bool:
        """Whether an adversary restores images of this protection."""
        attacks = self._config.attacks if self._config.task.sensitive is not None else []
        return cell.protection != "none" and any(ATTACKS[each].view == "restored" for each in attacks)

    # What cells share

    def _model(self, cell: Cell, learner: str) -> few_shot.FewShotModel:
        """The classifier of a learner: trained, or read from where an earlier cell or run left it."""
        config = self._config
        spec = "none" if learner == "clean" else cell.protection
        training = config.training if learner == "denoised" else replace(config.training, denoiser_depth=None)

        make = with_checkpoint(
            lambda checkpoint: few_shot.train(
                self._train,
                self._releases.protection(spec),
                training,
                target=config.task.target,
                validation=self._validation,
                seed=cell.seed,
                checkpoint=checkpoint,
                progress=self._progress.within,
            )
        )

        settings = {"training": changed(training), "spec": spec, "seed": cell.seed}
        settings |= {"target": config.task.target, "classes": config.task.classes, **artefacts_of([spec])}
        return self._models.once("few-shot", settings, make, few_shot.load)

    def _classifier(self, cell: Cell, learner: str) -> classifier.ClassifierModel:
        """The ordinary classifier of a learner, trained or read as those of `_model` are."""
        config = self._config
        spec = "none" if learner == "classifier-clean" else cell.protection
        shapes = learner == "classifier-shape"

        make = with_checkpoint(
            lambda checkpoint: classifier.train(
                self._train,
                self._releases.protection(spec),
                config.classifier,
                target=config.task.target,
                shapes=shapes,
                validation=self._validation,
                seed=cell.seed,
                checkpoint=checkpoint,
                progress=self._progress.within,
            )
        )

        settings = {**self._classifier_settings(), "spec": spec, "shapes": shapes, "seed": cell.seed}
        return self._models.once("classifier", {**settings, **artefacts_of([spec])}, make, classifier.load)

    def _meta_model(self, cell: Cell) -> meta.MetaModel:
        """The meta-learned model of a protection, trained or read as those of `_model` are."""

        make = with_checkpoint(
            lambda checkpoint: meta.train(
                self._train,
                self._releases.protection(cell.protection),
                self._config.meta,
                target=self._config.task.target,
                seed=cell.seed,
                checkpoint=checkpoint,
                progress=self._progress.within,
            )
        )

        settings = {**self._meta_settings(), "spec": cell.protection, "seed": cell.seed}
        settings |= artefacts_of([cell.protection])
        return self._models.once("meta", settings, make, meta.load)

    def _denoiser(self, cell: Cell) -> Callable[[Tensor], Tensor]:
        return lambda released: self._model(cell, "denoised").denoise(released)


def _shuffled(count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def _finite(value: Any) -> Any:
    """None for a bound that is infinite: JSON has no word for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _as_uris(batch: Tensor) -> list[str]:
    return ["data:image/png;base64," + base64.b64encode(images.encode(image)).decode() for image in batch]


def versions() -> dict[str, str]:
    """Of what a result depends on, for its record."""
    return {
        "sfumato": sfumato.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": str(torch.get_num_threads()),
        "machine": f"{sys.platform} {platform.machine()}",
    }
