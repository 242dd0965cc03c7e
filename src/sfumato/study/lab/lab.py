"""What the cells of a study share: its data, its releases, its networks and its adversaries.

What several cells need (trained protections, classifiers, the static adversary) is made once and kept beside
the records, so that stopping loses at most one epoch of training.
"""

import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import sfumato
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, did_you_mean
from sfumato.networks.encoders import embedding_cache
from sfumato.protect.release import file_digest_of
from sfumato.study.cells import Cell, changed, digest_of
from sfumato.study.grid import StudyConfig
from sfumato.study.lab.adversaries import Adversaries
from sfumato.study.lab.models import RESULTS, Models
from sfumato.study.lab.streams import MEASURED, Releases
from sfumato.study.parts import kinds, trained
from sfumato.study.parts.attacks import infer
from sfumato.study.parts.kinds.common import module
from sfumato.study.records import source_of
from sfumato.study.vocabulary import LEARNERS


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

    @classmethod
    def printed(cls) -> "Progress":
        """Each cell, and each note, on a line of standard error, for whoever runs a study from Python."""

        def cell(words: str, done: int, total: int) -> None:
            print(f"{done}/{total} {words}", file=sys.stderr, flush=True)

        return cls(cell=cell, note=lambda words: print(words, file=sys.stderr, flush=True))


class Lab:
    """The data of one study, and what its cells share. State: the networks and adversaries made so far.

    Attributes:
        config: of the study.
        data: all images.
        train, validation, asked: images of the splits that belong to the classes of the task; there may be no
            validation images.
        test: all test images.
        models: the networks.
        adversaries: who look for people.
        progress: what is told of a training under way.
    """

    def __init__(
        self, config: StudyConfig, loaded: LabelledImages, directory: Path, progress: Progress
    ) -> None:
        self.config = config
        self.data = loaded
        self.progress = progress
        shared = None if config.artefacts is None else Path(config.artefacts).absolute()
        self.models = Models(directory / "models", loaded.digest, shared=shared)
        self.train = self._of_the_task("train")
        self.validation = self._of_the_task("validation") if "validation" in loaded.splits else None
        self.test, self.asked = loaded.split("test"), self._of_the_task("test")
        self.releases = Releases()
        self.adversaries = Adversaries(self)
        self._check()

    def _of_the_task(self, split: str) -> LabelledImages:
        """The images of a split that belong to the classes of the task."""
        part, task = self.data.split(split), self.config.task
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
        config = self.config
        methods = dict.fromkeys(LEARNERS[name].method for name in config.learners)
        if config.episodic:
            methods = {"few_shot": None, **methods}
        for method in methods:
            if method != "few_shot" or config.episodic:
                module("learners", method).check(self)
        if config.task.sensitive is not None and (config.attacks or "face-similarity" in config.measures):
            self.adversaries.check()
        infer.check(self)
        for spec in config.specs:
            recipe = trained.recipe_of(spec)
            if recipe is None:
                self.protection_of(spec, 0).release(self.test.images[:1], seeded_noise(0))
            else:
                recipe.check(self)

    # Protections and what they release

    def protection(self, cell: Cell) -> Any:
        """The protection of a cell; see protection_of."""
        return self.protection_of(cell.protection, cell.seed)

    def protection_of(self, spec: str, seed: int) -> Any:
        """The protection of a spec of the study: what is to be trained for it is trained now, or read.

        Raises:
            BusyError: another process is training it.
        """
        recipe, path = trained.recipe_of(spec), self.artefact_of(spec, seed)
        if recipe is not None:
            spec = recipe.with_artefact(str(path))
        return self.releases.protection(spec)

    def artefact_of(self, spec: str, seed: int) -> Path | None:
        """The file of the protection that is trained for a spec, as `protection_of`; None for other specs."""
        recipe = trained.recipe_of(spec)
        if recipe is None:
            return None
        settings = {**recipe.settings(self.config), "seed": seed}
        return self.models.artefact(recipe.name, settings, lambda path: recipe.train(self, seed, path))

    def released(self, cell: Cell, clean: Tensor, stream: int = MEASURED, number: int = 0) -> Any:
        """What the protection of a cell makes of (N, C, H, W) uint8 images, the same way each time."""
        return self.protection(cell).release(clean, seeded_noise(cell.seed, stream, number))

    def seen(self, cell: Cell, clean: Tensor, view: str) -> Tensor:
        """(N, C, H, W) uint8 images: what there is to see of releases, as a name of vocabulary.VIEWS says."""
        from sfumato.study.parts.learners import few_shot

        release = self.released(cell, clean)
        if view == "restored":
            return self.adversaries.undone(cell, release)
        shown: Tensor = release.images()
        if view == "denoised":
            return few_shot.trained(self, cell.protection, cell.seed, "denoised").denoise(shown)
        return shown

    def guarantee(self, cell: Cell) -> dict[str, Any] | None:
        """What is proved of a release, as records have it."""
        guarantee = self.protection(cell).guarantee(tuple(self.test.images.shape[1:]))
        return None if guarantee is None else {"text": str(guarantee), **asdict(guarantee)}

    def shuffled(self, count: int, seed: int) -> Tensor:
        """The numbers below `count` in an order that the seed decides."""
        return torch.randperm(count, generator=torch.Generator().manual_seed(seed))

    def some_of_the_test(self, count: int, seed: int) -> Tensor:
        """Rows of so many test images."""
        return self.shuffled(len(self.test), seed)[:count]

    # What decides a result, and so its digest

    def digest(self, cell: Cell) -> str:
        """Of all that decides the result of a cell; the name of its record."""
        shared = {"results": RESULTS, "cell": asdict(cell), "data": self.data.digest}
        shared |= self.made_of(self.config.specs if cell.kind == "transfer" else [cell.protection])
        return digest_of({**shared, **kinds.ALL[cell.kind].settings(self, cell)})

    def training_settings(self) -> dict[str, Any]:
        """All of the study that decides a few-shot model, beside its protection and seed."""
        task, config = self.config.task, self.config
        return {"target": task.target, "training": changed(config.training), "classes": task.classes}

    def made_of(self, specs: Iterable[str]) -> dict[str, Any]:
        """What belongs into a digest beside these specs: their artefacts, or how they are trained."""
        artefacts, recipes = {}, {}
        for spec in specs:
            recipe = trained.recipe_of(spec)
            if recipe is not None:
                recipes[spec] = recipe.settings(self.config)
            elif (digest := file_digest_of(*trained.expand(spec))) is not None:
                artefacts[spec] = digest
        parts = {"artefacts": artefacts, "trained": recipes}
        return {name: part for name, part in parts.items() if part}

    # Cells

    def measure(self, cell: Cell) -> dict[str, Any]:
        """The result of a cell. Raises BusyError where another process is making what it needs."""
        with embedding_cache.store():
            result: dict[str, Any] = kinds.ALL[cell.kind].measure(self, cell)
        return result

    def description(self, cells: list[dict[str, Any]]) -> dict[str, Any]:
        """What study.json says: the settings, the data and the cells."""
        config = self.config
        named = {name: asdict(getattr(config, name)) for name in self._settings_used()}
        return {
            "name": config.name,
            "title": config.title or config.name,
            "data": {
                "source": source_of(self.data.name),
                "images": len(self.data),
                "shape": list(self.data.images.shape[1:]),
                **({"grey": True} if self.data.are_grey else {}),
                "digest": self.data.digest,
                "splits": {name: len(rows) for name, rows in self.data.splits.items()},
            },
            "task": {**asdict(config.task), "secret_is_task": self._secret_is_task()},
            "protections": config.specs,
            "learners": config.learners,
            "attacks": config.attacks if config.task.sensitive is not None else [],
            "measures": config.measures,
            "recommend": asdict(config.recommend),
            "seeds": config.seeds,
            **named,
            "left_out": kinds.left_out(config) + self._unreadable(),
            "versions": versions(),
            "cells": cells,
        }

    def _unreadable(self) -> list[str]:
        """How many files the data was read without, in words; their names are for whoever runs the study."""
        files, every = len(self.data.skipped), len(self.data.skipped) + len(self.data)
        return [f"Files of the data that cannot be read: {files:,} of {every:,}."] if files else []

    def _settings_used(self) -> list[str]:
        """The groups of settings that the study makes use of."""
        config = self.config
        recipes = {type(recipe).name for spec in config.specs if (recipe := trained.recipe_of(spec))}
        used = ["training"]
        if "meta" in config.learners:
            used.append("meta")
        if any(LEARNERS[name].method == "classifier" for name in config.learners):
            used.append("classifier")
        used += [f"{name}s" for name in ("mask", "feature", "code") if name in recipes]
        used += ["adversary", "restoration"]
        return used + (["inversion"] if config.reconstructions else [])

    def _secret_is_task(self) -> bool:
        """Whether the target label tells the sensitive one, on the test images.

        Then who does what the service does names the secret. The other way round, as where people have one
        gender each, the task tells little of who they are.
        """
        task = self.config.task
        if task.sensitive is None:
            return False
        pairs = torch.stack([self.asked.label(task.target).codes, self.asked.label(task.sensitive).codes])
        return int(pairs.unique(dim=1).shape[1]) == len(pairs[0].unique())


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
