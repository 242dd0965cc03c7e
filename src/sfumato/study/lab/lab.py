"""The parts that the cells of a study share: its data, its releases, its networks and its adversaries.

Parts that several cells need (trained protections, classifiers, the static adversary) are made once and kept
with the records, so that stopping loses at most one epoch of training.
"""

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sfumato import artefacts
from sfumato.base.files import claim, whole
from sfumato.base.hardware import device_named
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import Noise, seeded_noise
from sfumato.errors import DataError
from sfumato.images import digest
from sfumato.protect import parse
from sfumato.protect.release import KINDS, Trained, file_digest_of
from sfumato.protect.spec import portable
from sfumato.study.cells import Cell, Facts, digest_of, non_defaults
from sfumato.study.grid import StudyConfig
from sfumato.study.lab.adversaries import Adversaries
from sfumato.study.vocabulary import expand, is_recipe

# Raised when the same settings would give other results, so that older records are not taken for new ones.
RESULTS = 2
# Streams of noise, one for every use; those of adversaries are in attack.ensemble.
MEASURED = 0
NUMBERS_TESTED, CLASSIFIER_TRAINED, CLASSIFIER_VALIDATED, CLASSIFIER_TESTED, TELLING, TOLD, MANY = range(
    5, 12
)
_MOST_KEPT = 16  # networks in memory: more than the cells of one setting use

_Network = TypeVar("_Network")


@dataclass(frozen=True)
class Progress:
    """The listeners of a running study."""

    cell: Callable[[str, int, int], None] = lambda words, done, total: None  # before each: done, and in all
    within: Callable[[int, int], None] = lambda done, total: None  # steps of a training, done and planned
    note: Callable[[str], None] = lambda words: None  # a sentence that the user should read


def with_checkpoint(train: Callable[[Path], Any]) -> Callable[[Path], None]:
    """The `make` of `Models.once`, for a training that resumes from a checkpoint next to the network.

    It is removed when the network is written: it may hold unpublishable content.
    """

    def make(path: Path) -> None:
        checkpoint = path.with_suffix(".checkpoint")
        train(checkpoint).save(path)
        checkpoint.unlink(missing_ok=True)

    return make


class Models:
    """The networks of one study on one data set. State: folders of artefacts, and those used last."""

    def __init__(self, directory: Path, data: str, *, shared: Path | None = None) -> None:
        """Keeps networks in `directory`, protections' artefacts in `shared`, for data of that digest."""
        self._directory = directory
        self._shared = shared or directory
        self._data = data
        self._read: dict[str, Any] = {}

    def once(
        self,
        kind: str,
        settings: Facts,
        make: Callable[[Path], None],
        read: Callable[[Path], _Network],
        *,
        keep: bool = True,
    ) -> _Network:
        """The network that these settings decide, besides the data; made unless its file is there.

        `keep` is False for what is large and read once. Raises BusyError: another process is making it.
        """
        path = self.artefact(kind, settings, make, self._directory)
        network: _Network = self._read.pop(path.name) if path.name in self._read else read(path)
        if keep:
            self._read[path.name] = network
        for oldest in list(self._read)[:-_MOST_KEPT]:
            del self._read[oldest]
        return network

    def artefact(
        self, kind: str, settings: Facts, make: Callable[[Path], None], directory: Path | None = None
    ) -> Path:
        """The file that was trained with these settings, in the folder of protections; see `once`."""
        digest = digest_of({"results": RESULTS, "kind": kind, "data": self._data, **settings})
        path = (directory or self._shared) / f"{kind}-{digest}.safetensors"
        if path.name not in self._read and not path.exists():
            with claim(path):
                if not path.exists():
                    make(path)
        return path


def keep_recommended(
    directory: Path, protection: str, learner: str | None, *, recommended: bool = True
) -> Path | None:
    """Copies the few-shot model that a study recommends, of its first seed, to recommended.safetensors.

    Without a recommendation it is called not-recommended.safetensors. None, and no such file, if the study
    trained none for this protection, as with the learner "clean".
    """
    other, kept = directory / "not-recommended.safetensors", directory / "recommended.safetensors"
    for path in (other, kept):
        path.unlink(missing_ok=True)
    kept, fitting = kept if recommended else other, {}
    for path in (directory / "models").glob("few-shot-*.safetensors"):
        card = artefacts.read_card(path)
        denoises = card["config"]["denoiser_depth"] is not None
        wanted = learner == ("denoised" if denoises else "protected")
        if wanted and portable(card["spec"]) == portable(protection):
            fitting[card["seed"]] = path
    if not fitting:
        return None
    with whole(kept) as temporary:
        shutil.copyfile(fitting[min(fitting)], temporary)
    return kept


class Remembering:
    """A protection that puts an image through its network once. State: results, up to `room` bytes of them.

    They are releases; for protections that encode, encodings, on which each release has its own noise.
    """

    def __init__(self, protection: Any, *, room: int = 2**29) -> None:
        self._protection = protection
        self._known: dict[bytes, Any] = {}
        self._room = room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protection, name)

    def release(self, images: Tensor, noise: Noise) -> Any:
        """See Protection.release."""
        protection = self._protection
        if not len(images):
            return protection.release(images, noise)
        if hasattr(protection, "encode"):
            encoded = self._remember(images, lambda new: list(protection.encode(new).split(1)))
            return protection.release_of(torch.cat(encoded), noise)

        def release_each(new: Tensor) -> list[Any]:
            release = protection.release(new, noise)
            return [release.rows([row]) for row in range(len(release.values))]

        rows = self._remember(images, release_each)
        parts = {name: [getattr(row, name) for row in rows] for name in _row_fields(rows[0])}
        join: dict[bool, Any] = {True: torch.cat, False: np.concatenate}
        return replace(rows[0], **{name: join[isinstance(of[0], Tensor)](of) for name, of in parts.items()})

    def _remember(self, images: Tensor, make: Callable[[Tensor], list[Any]]) -> list[Any]:
        """The results of `make` for each image; it calls `make` for unknown images only."""
        keys = [digest(image) for image in images]
        made = {key: self._known[key] for key in keys if key in self._known}
        new = {key: row for row, key in enumerate(keys) if key not in made}
        if new:
            for key, row in zip(new, make(images[list(new.values())]), strict=True):
                made[key] = row
                of = {"": row} if isinstance(row, Tensor) else _row_fields(row)
                if (size := sum(part.nbytes for part in of.values())) <= self._room:
                    self._known[key] = row
                    self._room -= size
        return [made[key] for key in keys]


def _row_fields(release: Any) -> dict[str, Any]:
    parts = {field.name: getattr(release, field.name) for field in fields(release)}
    return {name: part for name, part in parts.items() if isinstance(part, (Tensor, np.ndarray))}


def _in_splits(data: LabelledImages) -> LabelledImages:
    """The images of splits, without further ones."""
    splits = {name: rows for name, rows in data.splits.items() if name != "further"}
    kept = torch.cat([*splits.values()]).unique()
    if len(kept) == len(data):
        return data
    numbers = torch.zeros(len(data), dtype=torch.int64).index_copy(0, kept, torch.arange(len(kept)))
    return replace(data.rows(kept), splits={name: numbers[rows] for name, rows in splits.items()})


def open_protection(spec: str) -> Any:
    """The protection that a spec names; a trained network sees each image once."""
    protection: Any = parse(spec, takes=KINDS)
    costly = isinstance(protection, Trained)
    if costly and (hasattr(protection, "encode") or not protection.draws_noise):
        return Remembering(protection)
    return protection


class Lab:
    """The data of one study, and the parts its cells share. State: the networks and adversaries made so far.

    `data` are all images, `test` those of a split, and `train`, `validation` (or None) and `asked` those of
    the task's classes in one. `recipes` maps a spec to the protection to train for it, see lab.trained.
    """

    def __init__(
        self, config: StudyConfig, loaded: LabelledImages, directory: Path, progress: Progress
    ) -> None:
        self.config = config
        self.device = device_named(config.device)
        self.data = loaded
        self.progress = progress
        shared = None if config.artefacts is None else Path(config.artefacts).absolute()
        self._shown = _in_splits(loaded).digest  # of all images but those for adversaries alone
        self.models = Models(directory / "models", self._shown, shared=shared)
        self.train = self._of_the_task("train")
        self.validation = self._of_the_task("validation") if "validation" in loaded.splits else None
        self.test, self.asked = loaded.split("test"), self._of_the_task("test")
        self.adversaries = Adversaries(config, loaded, self)
        self.recipes: dict[str, Any] = {
            spec: named for spec, named in config.named.items() if is_recipe(named)
        }
        # One is enough: the cells of a setting follow each other. Its artefact must not change meanwhile.
        self._last: tuple[str, Any] | None = None

    def _of_the_task(self, split: str) -> LabelledImages:
        part, task = self.data.split(split), self.config.task
        return part if task.classes is None else part.rows(task.rows(part, task.target))

    @property
    def who(self) -> Tensor:
        """(N,) who is on each test image of the task, numbered from 0; without a secret each is a person."""
        if (secret := self.config.task.sensitive) is None:
            return torch.arange(len(self.asked))
        numbers: Tensor = self.asked.label(secret).codes.unique(return_inverse=True)[1]
        return numbers

    def groups(self, label: str) -> dict[str, list[str]]:
        """The group of each person on test images, and of each whom adversaries look for."""
        people, made = {"tested": (self.asked, self.who)}, {}
        if (secret := self.config.task.sensitive) is not None:
            sought = self.adversaries.people.rows(self.adversaries.deal(self.config.seeds[0])[1])
            people["looked for"] = sought, sought.label(secret).codes
        for part, (images, who) in people.items():
            of = images.label(label)
            pairs = torch.stack([who, of.codes]).unique(dim=1)
            if several := pairs.shape[1] - len(who.unique()):
                words = "people have more than one value: name a label of people, such as gender"
                raise DataError(f"groups: {label}: {several} {words}")
            made[part] = [of.names[code] for code in pairs[1].tolist()]
        return made

    # Protections and their releases

    def protection(self, cell: Cell) -> Any:
        """The protection of a cell; see protection_of."""
        return self.protection_of(cell.protection, cell.seed)

    def protection_of(self, spec: str, seed: int) -> Any:
        """The protection of a spec, trained if it has a recipe. Raises BusyError: another process does so."""
        path = self.artefact_of(spec, seed)
        named = spec if path is None else self.recipes[spec].with_artefact(str(path))
        if self._last is None or self._last[0] != named:
            self._last = named, open_protection(named)
        return self._last[1]

    def artefact_of(self, spec: str, seed: int) -> Path | None:
        """The file of the protection that is trained for a spec, as `protection_of`; None for other specs."""
        recipe = self.recipes.get(spec)
        if recipe is None:
            return None
        trained = recipe.trained
        settings = {**trained.settings(self.config), "seed": seed}
        return self.models.artefact(trained.name, settings, lambda path: trained.train(self, seed, path))

    def release(self, cell: Cell, clean: Tensor, stream: int = MEASURED, number: int = 0) -> Any:
        """The release by a cell's protection of (N, C, H, W) uint8 images, the same each time."""
        return self.protection(cell).release(clean, seeded_noise(cell.seed, stream, number))

    def guarantee(self, cell: Cell) -> Facts | None:
        """The guarantee of a release, as records have it."""
        guarantee = self.protection(cell).guarantee(tuple(self.test.images.shape[1:]))
        return None if guarantee is None else {"text": str(guarantee), **asdict(guarantee)}

    def how(self, checkpoint: Path | None = None) -> dict[str, Any]:
        """How it trains: the device, who is told of the progress, and the checkpoint if there is one."""
        told = {"progress": self.progress.within, "device": self.device}
        return told if checkpoint is None else {**told, "checkpoint": checkpoint}

    def shuffle(self, count: int, seed: int) -> Tensor:
        """The numbers below `count` in an order that the seed decides."""
        return torch.randperm(count, generator=torch.Generator().manual_seed(seed))

    def some_of_the_test(self, count: int, seed: int) -> Tensor:
        """Rows of `count` test images."""
        return self.shuffle(len(self.test), seed)[:count]

    # The digest: all that decides a result

    def digest(self, cell: Cell, decided: Facts) -> str:
        """The digest of a cell, with all that decides its result."""
        shared = {"results": RESULTS, "cell": asdict(cell), "data": self._shown}
        return digest_of({**shared, **self.artefact_digest(cell.protection), **decided})

    def task_settings(self) -> Facts:
        """The settings of the task that decide a training for it."""
        return {"target": self.config.task.target, "classes": self.config.task.classes}

    def training_settings(self) -> Facts:
        """The settings of the study that decide a few-shot model, besides its protection and seed."""
        return {**self.task_settings(), "training": non_defaults(self.config.training)}

    def artefact_digest(self, spec: str) -> Facts:
        """The part of a digest besides a spec: its artefact, or how it is trained."""
        if spec in self.recipes:
            return {"trained": {spec: self.recipes[spec].trained.settings(self.config)}}
        # Parsed anew: its file may have changed since the study was read.
        digest = file_digest_of(*expand(spec))
        return {} if digest is None else {"artefacts": {spec: digest}}
