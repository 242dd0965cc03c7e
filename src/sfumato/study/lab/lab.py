"""The parts that the cells of a study share: its data, its releases, its networks and its adversaries.

Parts that several cells need (trained protections, classifiers, the static adversary) are made once and kept
with the records, so that stopping loses at most one epoch of training.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from sfumato.base.hardware import device_named
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, did_you_mean
from sfumato.protect.release import file_digest_of
from sfumato.study.cells import Cell, digest_of, non_defaults
from sfumato.study.grid import StudyConfig
from sfumato.study.lab.adversaries import Adversaries
from sfumato.study.lab.models import RESULTS, Models
from sfumato.study.lab.progress import Progress
from sfumato.study.lab.streams import MEASURED, Releases
from sfumato.study.specs import Untrained, expand


@runtime_checkable
class Recipe(Untrained, Protocol):
    """A protection that a lab trains."""

    def check(self, lab: "Lab") -> None:
        """Raises an error now that would otherwise come after an hour of training."""

    def train(self, lab: "Lab", seed: int, path: Path) -> None:
        """Trains it, and writes its artefact. Resumes from a checkpoint next to it if there is one."""


class Lab:
    """The data of one study, and the parts its cells share. State: the networks and adversaries made so far.

    Attributes:
        config: of the study.
        device: of its trainings.
        data: all images.
        train, validation, asked: images of the splits that belong to the classes of the task; there may be no
            validation images.
        test: all test images.
        models: the networks.
        adversaries: those that look for people.
        progress: the listener of a training under way.
        recipes: spec -> the protection that is trained for it.
        made: the releases, if others made them: see `release`.
    """

    def __init__(
        self,
        config: StudyConfig,
        loaded: LabelledImages,
        directory: Path,
        progress: Progress,
        *,
        made: Callable[[Tensor, int, int], Any] | None = None,
    ) -> None:
        self.config = config
        self.device = device_named(config.device)
        self.data = loaded
        self.progress = progress
        self.made = made
        shared = None if config.artefacts is None else Path(config.artefacts).absolute()
        self.models = Models(directory / "models", loaded.digest, shared=shared)
        self.train = self._of_the_task("train")
        self.validation = self._of_the_task("validation") if "validation" in loaded.splits else None
        self.test, self.asked = loaded.split("test"), self._of_the_task("test")
        self.releases = Releases()
        self.adversaries = Adversaries(config, loaded, self)
        self.recipes: dict[str, Recipe] = {
            spec: named for spec, named in config.named.items() if isinstance(named, Recipe)
        }

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

    # Protections and their releases

    def protection(self, cell: Cell) -> Any:
        """The protection of a cell; see protection_of."""
        return self.protection_of(cell.protection, cell.seed)

    def protection_of(self, spec: str, seed: int) -> Any:
        """The protection of a spec of the study; trains it now, or reads it, if it has a recipe.

        Raises:
            BusyError: another process is training it.
        """
        path = self.artefact_of(spec, seed)
        return self.releases.protection(spec if path is None else self.recipes[spec].with_artefact(str(path)))

    def artefact_of(self, spec: str, seed: int) -> Path | None:
        """The file of the protection that is trained for a spec, as `protection_of`; None for other specs."""
        recipe = self.recipes.get(spec)
        if recipe is None:
            return None
        settings = {**recipe.settings(self.config), "seed": seed}
        return self.models.artefact(recipe.name, settings, lambda path: recipe.train(self, seed, path))

    def release(self, cell: Cell, clean: Tensor, stream: int = MEASURED, number: int = 0) -> Any:
        """The release by a cell's protection of (N, C, H, W) uint8 images, the same each time."""
        if self.made is not None:
            return self.made(clean, stream, number)
        return self.protection(cell).release(clean, seeded_noise(cell.seed, stream, number))

    def guarantee(self, cell: Cell) -> dict[str, Any] | None:
        """The guarantee of a release, as records have it."""
        guarantee = self.protection(cell).guarantee(tuple(self.test.images.shape[1:]))
        return None if guarantee is None else {"text": str(guarantee), **asdict(guarantee)}

    def shuffle(self, count: int, seed: int) -> Tensor:
        """The numbers below `count` in an order that the seed decides."""
        return torch.randperm(count, generator=torch.Generator().manual_seed(seed))

    def some_of_the_test(self, count: int, seed: int) -> Tensor:
        """Rows of `count` test images."""
        return self.shuffle(len(self.test), seed)[:count]

    # The digest: all that decides a result

    def digest(self, cell: Cell, decided: dict[str, Any]) -> str:
        """The digest of a cell, with all that decides its result."""
        shared = {"results": RESULTS, "cell": asdict(cell), "data": self.data.digest}
        shared |= self.artefact_digests([cell.protection])
        return digest_of({**shared, **decided})

    def training_settings(self) -> dict[str, Any]:
        """The settings of the study that decide a few-shot model, besides its protection and seed."""
        task, config = self.config.task, self.config
        return {"target": task.target, "training": non_defaults(config.training), "classes": task.classes}

    def artefact_digests(self, specs: Iterable[str]) -> dict[str, Any]:
        """The part of a digest besides these specs: their artefacts, or how they are trained."""
        artefacts, recipes = {}, {}
        for spec in specs:
            if spec in self.recipes:
                recipes[spec] = self.recipes[spec].settings(self.config)
            # Parsed anew: its file may have changed since the study was read.
            elif (digest := file_digest_of(*expand(spec))) is not None:
                artefacts[spec] = digest
        parts = {"artefacts": artefacts, "trained": recipes}
        return {name: part for name, part in parts.items() if part}
