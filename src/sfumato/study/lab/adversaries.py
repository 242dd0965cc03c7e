"""The means of a study's adversaries: people to look for, others to train on, recognisers and restorers."""

import copy
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.assess import similarity
from sfumato.attack import reidentify, undo
from sfumato.attack.reidentify import FACE_NETWORKS, FaceFinder
from sfumato.attack.saturation import Training
from sfumato.data.labelled import LabelledImages, draw_rows
from sfumato.errors import ConfigError, DataError
from sfumato.learn.start import begin, by_content
from sfumato.networks import MTCNN, Conv4, DlibResNet, UpConvolutional, align
from sfumato.networks.weights import initial_weights
from sfumato.study.cells import Cell, non_defaults
from sfumato.study.grid import StudyConfig
from sfumato.study.lab.models import Models
from sfumato.study.lab.progress import Progress
from sfumato.study.lab.streams import OTHERS, RESTORED
from sfumato.study.vocabulary import IMAGES, release_kind

_VERSION = 3  # raised when the same adversary would find more or less, as models.RESULTS for all
_FRAMING = 300  # photographs that show the usual place of faces


class Releasing(Protocol):
    """Their view of a lab: releases as the devices make them, and its networks."""

    device: torch.device  # of trainings

    @property
    def models(self) -> Models:
        """The networks."""

    @property
    def progress(self) -> Progress:
        """The listener of a training under way."""

    def release(self, cell: Cell, clean: Tensor, stream: int, number: int = 0) -> Any:
        """The release by a cell's protection of (N, C, H, W) uint8 images."""

    def artefact_digests(self, specs: Iterable[str]) -> dict[str, Any]:
        """The part of a digest that depends on more than the text of these specs."""


class Adversaries:
    """All who are after the sensitive label of one study. State: their trained networks so far."""

    def __init__(self, config: StudyConfig, data: LabelledImages, lab: Releasing) -> None:
        """The adversaries of a study, on its data, with the lab that releases."""
        self._config = config
        self._data = data
        self._lab = lab

    def check(self) -> None:
        """Raises DataError if there is nobody to look for, or nobody to train on."""
        self._data.label(self.sensitive)
        self.others  # noqa: B018 - raises if there is nobody
        self.deal(0)
        self.second  # noqa: B018 - raises without its wheels
        if self._faces and self._data.images.shape[1] != 3:
            raise DataError(
                f"{self._data.name}: grey images, and {self._config.adversary.recogniser} reads colour: load "
                "them with channels: 3, or use recogniser: conv4"
            )

    def settings(self, adversary: reidentify.AdversaryConfig) -> dict[str, Any]:
        """The digest's part for an adversary: their settings, and the content of the files they name."""
        settings = non_defaults(adversary)
        for name in ("weights", "detector"):
            if name in settings:
                settings[name] = _digest(Path(settings[name]))
        if adversary.weights is not None:
            settings.pop("start", None)  # a face network was trained before
        elif "start" in settings:
            settings["start"] = by_content(settings["start"])
        return {"sensitive": self._config.task.sensitive, "adversary": settings, "version": _VERSION}

    def undoing(self, spec: str) -> dict[str, Any]:
        """The settings of the study that decide the network with which they undo a protection."""
        settings: dict[str, Any] = {"sensitive": self.sensitive, "adversaries": _VERSION}
        if release_kind(spec) in IMAGES:
            return settings | {"restoration": non_defaults(self._config.restoration)}
        return settings | {"inversion": non_defaults(self._config.inversion)}

    def recogniser(self) -> dict[str, Any]:
        """The settings of the study that decide their recogniser of clean photographs."""
        return self.settings(replace(self._config.adversary, adaptive_steps=0, second=None))

    # People

    @property
    def sensitive(self) -> str:
        """The label that they are after. Raises ConfigError if there is none."""
        if self._config.task.sensitive is None:
            raise ConfigError("attacks need task.sensitive: name the label that must stay hidden")
        return self._config.task.sensitive

    @cached_property
    def people(self) -> LabelledImages:
        """The people to look for: the test images, and the distractors if the data has any."""
        return self._of_splits("test", "distractors")

    @cached_property
    def further(self) -> LabelledImages:
        """The test people, with further pictures of them if the data has any."""
        return self._of_splits("test", "further")

    def _of_splits(self, *names: str) -> LabelledImages:
        rows = [self._data.splits[name] for name in names if name in self._data.splits]
        return self._data.rows(torch.cat(rows))

    @cached_property
    def others(self) -> LabelledImages:
        """Training images of people who are not among those to look for; of all known ones in `released`."""
        train = self._data.split("train")
        if "released" in self._data.splits:
            return train
        codes = train.label(self.sensitive).codes
        looked_for = self.people.classes(self.sensitive)
        others = train.rows((~torch.isin(codes, looked_for)).nonzero().flatten())
        if len(others.classes(self.sensitive)) < 2:
            raise DataError(
                f"{self._data.name}: an adversary trains on others than those they look for, and each "
                f"{self.sensitive} in the training split is in the test split too: split the "
                "data by that label, or set sensitive: null"
            )
        return others

    @property
    def _codes_of_others(self) -> Tensor:
        codes: Tensor = self.others.label(self.sensitive).codes
        return codes

    def deal(self, seed: int) -> tuple[Tensor, Tensor]:
        """Rows of `people` that are known, and rows to name; all before `released` are known."""
        if (rows := self._data.splits.get("released")) is not None:
            return torch.arange(int(rows[0])), rows
        adversary = self._config.adversary
        codes = self.people.label(self.sensitive).codes
        return reidentify.split_gallery(codes, gallery=adversary.gallery, probes=adversary.probes, seed=seed)

    # Undoing protections

    def undone(self, cell: Cell, released: Any) -> Tensor:
        """From a release to (N, C, H, W) uint8 images, as well as `undoer` can."""
        undoer = self.undoer(cell)
        return undoer.restore(released.images() if isinstance(undoer, undo.Restorer) else released.vectors())

    def undoer(self, cell: Cell) -> undo.Undoer:
        """The network by which they undo a protection, trained on people outside the test split."""
        images = release_kind(cell.protection) in IMAGES
        return self._restorer(cell) if images else self._inverter(cell)

    def _restorer(self, cell: Cell) -> undo.Restorer:
        config, clean = self._config.restoration, self.others.images

        def make(path: Path) -> None:
            restorer = undo.train_restorer(
                clean,
                lambda batch, step: self._lab.release(cell, batch, RESTORED, step).images(),
                config,
                people=self._codes_of_others,
                seed=cell.seed,
                progress=self._lab.progress.within,
                device=self._lab.device,
            )
            artefacts.save(path, restorer.state_dict(), _card("restorer", restorer, settings))

        def read(path: Path) -> undo.Restorer:
            with initial_weights():
                restorer = undo.Restorer(undo.NETWORKS[config.network](clean.shape[1]))
            tensors, card = artefacts.load(path, kind="restorer")
            restorer.load_state_dict(tensors)
            restorer.trained = Training(**card["trained"])
            return restorer.to(self._lab.device)

        settings = self._of(cell)
        return self._lab.models.once("restorer", settings, make, read)

    def _inverter(self, cell: Cell) -> undo.Inverter:
        config, clean = self._config.inversion, self.others.images

        def make(path: Path) -> None:
            released = self._lab.release(cell, clean, RESTORED).vectors()
            inverter = undo.train_inverter(
                released,
                clean,
                config,
                people=self._codes_of_others,
                seed=cell.seed,
                progress=self._lab.progress.within,
                device=self._lab.device,
            )
            artefacts.save(path, inverter.state_dict(), _card("inverter", inverter, settings))

        def read(path: Path) -> undo.Inverter:
            tensors, card = artefacts.load(path, kind="inverter")
            channels, height, width = clean.shape[1:]
            with initial_weights():
                dimension = len(tensors["mean"])
                decoder = UpConvolutional(dimension, (channels, height, width), width=config.width)
            inverter = undo.Inverter(decoder, tensors["mean"], tensors["spread"])
            inverter.load_state_dict(tensors)
            inverter.trained = Training(**card["trained"])
            return inverter.eval().to(self._lab.device)

        settings = self._of(cell)
        return self._lab.models.once("inverter", settings, make, read)

    def _of(self, cell: Cell) -> dict[str, Any]:
        """The settings that decide a network that undoes the protection of a cell."""
        made_of = self._lab.artefact_digests([cell.protection])
        return {"spec": cell.protection, "seed": cell.seed, **self.undoing(cell.protection), **made_of}

    # Recognisers

    def static(self, seed: int) -> reidentify.Recogniser:
        """The recogniser of an adversary who knows clean photographs only."""
        config = self._config.adversary
        if not config.steps:
            return reidentify.Recogniser(self._network()).to(self._lab.device)
        clean = self.others.images

        def make(path: Path) -> None:
            faces = self.cut(clean, self._landmarks_of_others)
            recogniser = self._train(lambda _: faces, seed, config, self._network())
            artefacts.save(path, recogniser.state_dict(), _card("recogniser", recogniser, {"seed": seed}))

        def read(path: Path) -> reidentify.Recogniser:
            recogniser = reidentify.Recogniser(self._network())
            tensors, card = artefacts.load(path, kind="recogniser")
            recogniser.load_state_dict(tensors)
            recogniser.trained = Training(**card["trained"])
            return recogniser.to(self._lab.device)

        settings = {**self.recogniser(), "seed": seed}
        return self._lab.models.once("recogniser", settings, make, read)

    def adaptive(self, cell: Cell, shown: Callable[[Tensor, int, int], Tensor]) -> reidentify.Recogniser:
        """The static recogniser, trained further on photographs that look to it as the probes do.

        They are their own, so that they know the place of the faces from the clean ones.
        """
        start, config = self.static(cell.seed), self._config.adversary
        further = replace(config, steps=config.adaptive_steps)
        return self._train(
            lambda number: self.cut(shown(self.others.images, OTHERS, number), self._landmarks_of_others),
            cell.seed,
            further,
            copy.deepcopy(start.encoder),
        )

    def _train(
        self,
        seen: Callable[[int], Tensor],
        seed: int,
        config: reidentify.AdversaryConfig,
        encoder: nn.Module,
    ) -> reidentify.Recogniser:
        return reidentify.train_recogniser(
            seen,
            self._codes_of_others,
            config,
            encoder=encoder,
            seed=seed,
            progress=self._lab.progress.within,
            device=self._lab.device,
        )

    @cached_property
    def second(self) -> DlibResNet | None:
        """A second public network of theirs, which is not trained; None if they have one alone."""
        return None if self._config.adversary.second is None else DlibResNet.load()

    def _network(self) -> nn.Module:
        """The encoder that the adversary starts from."""
        config = self._config.adversary
        if config.weights is not None:
            return FACE_NETWORKS[config.recogniser][0].load(config.weights)
        with initial_weights(self._config.seeds[0]):
            network = Conv4(self._data.images.shape[1])
        begin(network, config.start)
        return network

    # Faces

    def face_similarity(
        self, originals: LabelledImages, others: Tensor, seed: int
    ) -> tuple[float, float | None]:
        """How alike faces are on originals and on `others`, by the adversaries' recogniser: mean cosines.

        Both are cut at the face of the ORIGINAL: a detector that misses it is not a protection.

        Returns:
            of each original and its counterpart; and, for comparison, of originals of two people (None if
            there is one), below which there is little to hide.
        """
        landmarks, recogniser = self._landmarks(originals.images), self.static(seed)
        first, second = (
            recogniser.embed(self.cut(images, landmarks)) for images in (originals.images, others)
        )
        known = self._config.task.sensitive is not None  # otherwise all are different people
        codes = originals.label(self.sensitive).codes if known else torch.arange(len(originals))
        left, right = (codes[:, None] != codes).nonzero().T
        strangers = similarity.embedding_similarity(first[left], first[right])
        return (
            similarity.embedding_similarity(first, second).mean().item(),
            strangers.mean().item() if len(strangers) else None,
        )

    def faces_on(self, images: Tensor) -> Any:
        """The places of the faces on images; None if the recogniser needs none."""
        return None if self._finder is None else self._finder.find(images)

    def landmarks_of_people(self, rows: Tensor) -> Tensor | None:
        """The places of the faces on clean photographs of those to look for; None if nothing uses them."""
        return None if self._landmarks_of_all is None else self._landmarks_of_all[rows]

    def cut(self, images: Tensor, landmarks: Tensor | None) -> Tensor:
        """The input of the recogniser: whole images, or the faces at those landmarks."""
        if landmarks is None:
            return images
        return align(images, landmarks, FACE_NETWORKS[self._config.adversary.recogniser][1])

    @property
    def _faces(self) -> bool:
        return self._config.adversary.recogniser in FACE_NETWORKS

    @cached_property
    def _finder(self) -> FaceFinder | None:
        detector = self._config.adversary.detector
        known = self._config.task.sensitive is not None
        every = self.others if known else self._data.split("train")
        who = every.label(self.sensitive).codes if known else torch.zeros(len(every), dtype=torch.int64)
        framing = every.images[draw_rows(who, _FRAMING, seed=0)]
        return None if detector is None else FaceFinder(MTCNN.load(detector), framing)

    @cached_property
    def _landmarks_of_all(self) -> Tensor | None:
        """For clean photographs, once for all attacks."""
        return self._landmarks(self.people.images)

    @cached_property
    def _landmarks_of_others(self) -> Tensor | None:
        return self._landmarks(self.others.images)

    def _landmarks(self, images: Tensor) -> Tensor | None:
        return None if self._finder is None else self._finder.find(images).landmarks


def _card(
    kind: str,
    network: reidentify.Recogniser | undo.Undoer,
    settings: dict[str, Any],
) -> dict[str, Any]:
    assert network.trained is not None  # it was, right now
    return {"kind": kind, **settings, "trained": asdict(network.trained)}


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: the weights cannot be read ({error.strerror})") from error
