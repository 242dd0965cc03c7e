"""The means of a study's adversaries: people to look for, others to train on, recognisers and decoders."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.assess import similarity
from sfumato.attack import reidentify
from sfumato.attack.ensemble import RESTORED, Gallery
from sfumato.attack.invert import Inverter, train_inverter
from sfumato.attack.reidentify import FACE_NETWORKS, AdversaryConfig, Recognisers
from sfumato.attack.saturation import Training
from sfumato.data.labelled import LabelledImages
from sfumato.errors import ConfigError, DataError
from sfumato.learn.start import begin, by_content
from sfumato.networks import Conv4, UpConvolutional
from sfumato.networks.weights import initial_weights
from sfumato.study.cells import Cell, Facts, non_defaults
from sfumato.study.grid import StudyConfig
from sfumato.study.vocabulary import IMAGES, release_kind

_Network = TypeVar("_Network")
_VERSION = 4  # raised when the same adversary would find more or less, as lab.RESULTS for all


def first_network(config: AdversaryConfig, channels: int, seed: int) -> nn.Module:
    """The encoder that an adversary starts from."""
    if config.weights is not None:
        return FACE_NETWORKS[config.recogniser][0].load(config.weights)
    with initial_weights(seed):
        network = Conv4(channels)
    begin(network, config.start)
    return network


class Adversaries:
    """All who are after the sensitive label of one study. State: their trained networks so far."""

    def __init__(self, config: StudyConfig, data: LabelledImages, lab: Any) -> None:
        self._config = config
        self._data = data
        self._lab = lab

    def check(self) -> None:
        """Raises DataError if there is nobody to look for, or nobody to train on."""
        self._data.label(self.sensitive)
        self.others  # noqa: B018 - raises if there is nobody
        if words := self.cut_gallery:
            self._lab.progress.note(words)
        self.recognisers.second  # noqa: B018 - raises without its wheels
        faces = self._config.adversary.recogniser in FACE_NETWORKS
        if faces and self._data.images.shape[1] != 3:
            raise DataError(
                f"{self._data.name}: grey images, and {self._config.adversary.recogniser} reads colour: load "
                "them with channels: 3, or use recogniser: conv4"
            )

    def settings(self, adversary: AdversaryConfig) -> Facts:
        """The digest's part for an adversary: their settings, and the content of the files they name."""
        # Recognisers are not shown mirror images.
        settings = {**non_defaults(replace(adversary, mirrored=True)), "seen": self._data.digest}
        for name in ("weights", "detector"):
            if name in settings:
                settings[name] = _digest(Path(settings[name]))
        if adversary.weights is not None:
            settings.pop("start", None)  # a face network was trained before
        elif "start" in settings:
            settings["start"] = by_content(settings["start"])
        return {"sensitive": self._config.task.sensitive, "adversary": settings, "version": _VERSION}

    def inverting(self) -> Facts:
        """The settings of the study that decide the network by which they draw images from numbers."""
        settings = non_defaults(self._config.inversion)
        seen = {"others": self._config.adversary.others, "seen": self._data.digest}
        return {"sensitive": self.sensitive, "adversaries": _VERSION, "inversion": settings, **seen}

    def of_clear(self) -> Facts:
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
        """All images of people who are not looked for, or of `adversary.others` of these people."""
        others = self._of_others(self._data)
        codes, most = others.label(self.sensitive).codes, self._config.adversary.others
        who = others.classes(self.sensitive)
        if most is None or most >= len(who):
            return others
        drawn = who[torch.randperm(len(who), generator=torch.Generator().manual_seed(0))[:most]]
        return others.rows(torch.isin(codes, drawn).nonzero().flatten())

    @cached_property
    def training(self) -> LabelledImages:
        """Training images of people who are not among those to look for."""
        return self._of_others(self._data.split("train"))

    def _of_others(self, data: LabelledImages) -> LabelledImages:
        looked_for = torch.isin(data.label(self.sensitive).codes, self.people.classes(self.sensitive))
        others = data.rows((~looked_for).nonzero().flatten())
        if len(others.classes(self.sensitive)) < 2:
            raise DataError(
                f"{self._data.name}: an adversary trains on others than those they look for, and each "
                f"{self.sensitive} in the training split is in the test split too: split the "
                "data by that label, or set sensitive: null"
            )
        return others

    def deal(self, seed: int) -> tuple[Tensor, Tensor]:
        """Rows of `people` that are known, and rows to name."""
        adversary = self._config.adversary
        codes = self.people.label(self.sensitive).codes
        return reidentify.split_gallery(codes, known=adversary.known, probes=adversary.probes, seed=seed)

    @property
    def cut_gallery(self) -> str:
        """The photographs they have of a person, in words, if nobody has as many as the study says; or ""."""
        asked, (known, _) = self._config.adversary.known, self.deal(0)
        most = int(self.people.label(self.sensitive).codes[known].bincount().max())
        words = f"adversary.known={asked}: the adversaries have at most {most} photographs of a person"
        return words if most < asked else ""

    def gallery(self, cell: Cell, *, faces: bool = False) -> tuple[Gallery, Tensor]:
        """What they know of a cell's people, with landmarks if `faces`; and who is on the probes."""
        known, rows = self.deal(cell.seed)
        codes = self.people.label(self.sensitive).codes
        gallery = Gallery(
            known=self.people.images[known],
            names=codes[known],
            asked=self.people.images[rows],
            others=self.others.images,
            of_others=self.others.label(self.sensitive).codes,
            release=partial(self._lab.release, cell),
            noisy=self._lab.protection(cell).draws_noise,
            images=release_kind(cell.protection) in IMAGES,
            mirrored=self._config.adversary.mirrored,
            landmarks=self._landmarks[known] if faces and self._landmarks is not None else None,
            seed=cell.seed,
        )
        return gallery, codes[rows]

    # Networks

    def inverter(self, cell: Cell) -> Inverter:
        """The network by which they draw images from numbers, trained on people outside the test split."""
        others, codes = self.others, self.others.label(self.sensitive).codes
        config, (channels, height, width) = self._config.inversion, others.images.shape[1:]

        def empty(tensors: dict[str, Tensor]) -> Inverter:
            decoder = UpConvolutional(len(tensors["mean"]), (channels, height, width), width=config.width)
            return Inverter(decoder, tensors["mean"], tensors["spread"])

        def train() -> Inverter:
            numbers = self._lab.release(cell, others.images, RESTORED).vectors()
            how: dict[str, Any] = {"people": codes, "seed": cell.seed, **self._lab.how()}
            return train_inverter(numbers, others.images, config, **how)

        settings = {"spec": cell.protection, "seed": cell.seed, **self.inverting()}
        settings |= self._lab.artefact_digest(cell.protection)
        return self._once("inverter", settings, settings, train, empty)

    @cached_property
    def recognisers(self) -> Recognisers:
        """Their recognisers; of a face network alone, if nobody is looked for."""
        known = self._config.task.sensitive is not None
        every = self.others if known else self._data.split("train")
        who = every.label(self.sensitive).codes if known else torch.zeros(len(every), dtype=torch.int64)
        encoder = partial(
            first_network, self._config.adversary, self._data.images.shape[1], self._config.seeds[0]
        )
        return Recognisers(self._config.adversary, every.images, who, encoder, self._lab.how())

    def static(self, seed: int) -> reidentify.Recogniser:
        """The recogniser of an adversary who knows clean photographs only."""
        if not self._config.adversary.steps:
            return self.recognisers.train(seed)

        def empty(tensors: dict[str, Tensor]) -> reidentify.Recogniser:
            return reidentify.Recogniser(self.recognisers.encoder())

        settings = {**self.of_clear(), "seed": seed}
        train = partial(self.recognisers.train, seed)
        return self._once("recogniser", settings, {"seed": seed}, train, empty)

    def _once(
        self,
        kind: str,
        settings: Facts,
        card: Facts,
        train: Callable[[], _Network],
        empty: Callable[[dict[str, Tensor]], _Network],
    ) -> _Network:

        def make(path: Path) -> None:
            network: Any = train()
            trained = {"trained": asdict(network.trained)}
            artefacts.save(path, network.state_dict(), {"kind": kind, **card, **trained})

        def read(path: Path) -> Any:
            tensors, card = artefacts.load(path, kind=kind)
            with initial_weights():
                network: Any = empty(tensors)
            network.load_state_dict(tensors)
            network.trained = Training(**card["trained"])
            return network.eval().to(self._lab.device)

        network: _Network = self._lab.models.once(kind, settings, make, read)
        return network

    # Faces

    def face_similarity(
        self, originals: LabelledImages, others: Tensor, seed: int
    ) -> tuple[float, float | None]:
        """Mean cosines of faces on originals and on `others`, and of originals of two people, if there are.

        Both are cut at the face of the ORIGINAL: a detector that misses it is not a protection.
        """
        recogniser, (faces, _) = self.static(seed), self.recognisers.find(originals.images)
        first, second = (
            recogniser.embed(self.recognisers.cut(images, faces)) for images in (originals.images, others)
        )
        known = self._config.task.sensitive is not None  # otherwise all are different people
        codes = originals.label(self.sensitive).codes if known else torch.arange(len(originals))
        left, right = (codes[:, None] != codes).nonzero().T
        strangers = similarity.embedding_similarity(first[left], first[right])
        alike = similarity.embedding_similarity(first, second).mean().item()
        return alike, strangers.mean().item() if len(strangers) else None

    @cached_property
    def _landmarks(self) -> Tensor | None:
        """Those of faces on clean photographs of people, once for all attacks; None if nothing uses them."""
        return self.recognisers.find(self.people.images)[0]


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: the weights cannot be read ({error.strerror})") from error
