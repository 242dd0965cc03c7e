"""The adversaries of a study: whom they train on, what they see, and how often they are right."""

import copy
import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.assess import recognition, similarity
from sfumato.attack import reidentify, restore
from sfumato.attack.faces import FaceFinder
from sfumato.attack.reidentify import FACE_NETWORKS
from sfumato.data.labelled import LabelledImages
from sfumato.errors import ConfigError, DataError
from sfumato.networks import MTCNN, Conv4, align
from sfumato.networks.weights import initial_weights
from sfumato.study.grid import ATTACKS, Cell, StudyConfig
from sfumato.study.models import Models
from sfumato.study.records import changed
from sfumato.study.streams import GALLERY, OTHERS, PROBES, RESTORED, Releases, artefacts_of

_VERSION = 2  # raised when the same adversary would find more or less, as models.RESULTS for all
_TRAINED_FURTHER = ", trained further"
_FRAMING = 300  # photographs that tell where faces usually lie
_PAIRS = 20_000_000  # at most so many pairs are verified: more would need gigabytes


class Adversaries:
    """All who are after the sensitive label of one study. State: what they have trained so far."""

    def __init__(
        self,
        config: StudyConfig,
        loaded: LabelledImages,
        models: Models,
        releases: Releases,
        progress: Callable[[int, int], None],
    ) -> None:
        self._config = config
        self._data = loaded
        self._models = models
        self._releases = releases
        self._progress = progress

    def check(self) -> None:
        """Raise DataError where there is nobody to look for, or nobody to train on."""
        self._data.label(self._sensitive)
        self.others  # noqa: B018 - raises where there is nobody
        self._dealt(0)
        if self._faces and self._data.images.shape[1] != 3:
            raise DataError(
                f"{self._data.name}: grey images, and {self._config.adversary.recogniser} reads colour: load "
                "them with channels: 3, or use recogniser: conv4"
            )

    def settings(self, attack: str) -> dict[str, Any]:
        """All of the study that decides the figures of an attack, beside the denoiser of the service."""
        shared = self._identity(self._config.adversary)
        if ATTACKS[attack].view == "restored":
            shared["restoration"] = changed(self._config.restoration)
        return shared

    def recogniser(self) -> dict[str, Any]:
        """All of the study that decides his recogniser of clean photographs."""
        return self._identity(replace(self._config.adversary, adaptive_steps=0))

    def face_similarity(
        self, originals: LabelledImages, others: Tensor, seed: int
    ) -> tuple[float, float | None]:
        """How alike faces are on originals and on what was made of them, as he knows faces: mean cosines.

        Both are cut where the face is on the ORIGINAL: a detector that misses it is no protection.

        Returns:
            of each original and its counterpart; and, to compare with, of originals of two people (None where
            there is one), below which there is little to hide.
        """
        places, recogniser = self._find(originals.images), self._static(seed)
        first, second = (recogniser.embed(self._cut(each, places)) for each in (originals.images, others))
        codes = originals.label(self._sensitive).codes
        left, right = (codes[:, None] != codes).nonzero().T
        strangers = similarity.embedding_similarity(first[left], first[right])
        return (
            similarity.embedding_similarity(first, second).mean().item(),
            strangers.mean().item() if len(strangers) else None,
        )

    def _identity(self, adversary: reidentify.AdversaryConfig) -> dict[str, Any]:
        """What decides an adversary: his settings, and what is in the files that they name."""
        settings = changed(adversary)
        for name in ("weights", "detector"):
            if name in settings:
                settings[name] = _digest(Path(settings[name]))
        return {"sensitive": self._sensitive, "adversary": settings, "version": _VERSION}

    def attack(self, cell: Cell, attack: str, denoise: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """Look for everybody on protected photographs, and say how often that works.

        Args:
            cell: its protection and seed count.
            attack: a name of ATTACKS.
            denoise: the denoiser of the service, uint8 images to uint8 images.
        """
        kind = ATTACKS[attack]
        noisy = self._releases.protection(cell.protection).draws_noise
        shown_before: dict[int, Tensor] = {}

        def shown(images: Tensor, stream: int, number: int = 0) -> Tensor:
            """The images of a stream, which are the same each time, as they are released and then seen."""
            if noisy or stream not in shown_before:
                shown_before[stream] = seen(images, stream, number)
            return shown_before[stream]

        def seen(images: Tensor, stream: int, number: int) -> Tensor:
            released = self._releases.of(cell, images, stream, number)
            match kind.view:
                case "denoised":
                    return denoise(released.images())
                case "restored":
                    return self.restorer(cell).restore(released.images())
                case "shape":
                    return released.shapes()
                case _:
                    return released.images()

        gallery, probes = self._dealt(cell.seed)
        codes = self._people.label(self._sensitive).codes
        known, names = self._people.images[gallery], codes[gallery]
        places = None if self._people_places is None else self._people_places[gallery]
        weight = 1
        if kind.adaptive:
            copies = self._config.adversary.copies
            if not noisy:  # they are equal: one that counts as often
                copies, weight = 1, copies
            known = torch.cat([shown(known, GALLERY, number) for number in range(copies)])
            names = names.repeat(copies)
            places = None if places is None else places.repeat(copies, 1, 1)
        asked, truth = shown(self._people.images[probes], PROBES), codes[probes]
        found = None if self._finder is None else self._finder.find(asked)
        known, asked = self._cut(known, places), self._cut(asked, None if found is None else found.landmarks)
        # Further training may spoil what a recogniser knew: an adversary keeps the better one.
        recognisers = {"": self._static(cell.seed)}
        if kind.adaptive and self._config.adversary.adaptive_steps:
            recognisers[_TRAINED_FURTHER] = self._adaptive(cell, shown)
        scores, verified = [], []
        for suffix, recogniser in recognisers.items():
            embedded, embedded_probes = recogniser.embed(known), recogniser.embed(asked)
            for each in reidentify.reidentify(embedded, names, embedded_probes, weight=weight):
                judged = recognition.identification(each.similarities, each.identities, truth)
                scores.append({"classifier": each.classifier + suffix, **asdict(judged)})
            verified.append(_verified(embedded, names, embedded_probes, truth))
        return {
            "scores": scores,
            "chance": recognition.chance(truth),
            "identities": len(names.unique()),
            "gallery": len(gallery),
            "probes": len(probes),
            **max(verified, key=lambda each: each["verification_auc"]),
            "faces_found": None if found is None else found.rate,
        }

    def restorer(self, cell: Cell) -> restore.Restorer:
        """The adversary's network that undoes a protection, trained on people outside the test split."""
        config, clean = self._config.restoration, self.others.images

        def make(path: Path) -> None:
            restorer = restore.train_restorer(
                clean,
                lambda batch, step: self._releases.of(cell, batch, RESTORED, step).images(),
                config,
                seed=cell.seed,
                progress=self._progress,
            )
            artefacts.save(path, restorer.state_dict(), {"kind": "restorer", **settings})

        def read(path: Path) -> restore.Restorer:
            with initial_weights():
                restorer = restore.Restorer(restore.NETWORKS[config.network](clean.shape[1]))
            restorer.load_state_dict(artefacts.load(path, kind="restorer")[0])
            return restorer

        settings = {"restoration": changed(config), "spec": cell.protection, "seed": cell.seed}
        settings |= {"sensitive": self._sensitive, **artefacts_of([cell.protection])}
        return self._models.once("restorer", settings, make, read)

    @cached_property
    def others(self) -> LabelledImages:
        """Training images of people who are not among those to look for."""
        train = self._data.split("train")
        codes = train.label(self._sensitive).codes
        looked_for = self._people.classes(self._sensitive)
        others = train.rows((~torch.isin(codes, looked_for)).nonzero().flatten())
        if len(others.classes(self._sensitive)) < 2:
            raise DataError(
                f"{self._data.name}: an adversary trains on others than those he looks for, and each "
                f"{self._sensitive} in the training split is in the test split too: split the "
                "data by that label, or set sensitive: null"
            )
        return others

    @property
    def _sensitive(self) -> str:
        if self._config.task.sensitive is None:
            raise ConfigError("attacks need task.sensitive: name the label that must stay hidden")
        return self._config.task.sensitive

    @cached_property
    def _people(self) -> LabelledImages:
        """Those to look for: the test images, and the distractors where the data names some."""
        splits = [name for name in ("test", "distractors") if name in self._data.splits]
        return self._data.rows(torch.cat([self._data.splits[name] for name in splits]))

    def _dealt(self, seed: int) -> tuple[Tensor, Tensor]:
        adversary = self._config.adversary
        codes = self._people.label(self._sensitive).codes
        return reidentify.split_gallery(codes, gallery=adversary.gallery, probes=adversary.probes, seed=seed)

    # Recognisers

    def _static(self, seed: int) -> reidentify.Recogniser:
        """The recogniser of one who knows clean photographs only."""
        config = self._config.adversary
        if not config.steps:
            return reidentify.Recogniser(self._network())
        clean = self.others.images

        def make(path: Path) -> None:
            faces = self._cut(clean, self._others_places)
            recogniser = self._trained(lambda _: faces, seed, config, self._network())
            artefacts.save(path, recogniser.state_dict(), {"kind": "recogniser", "seed": seed})

        def read(path: Path) -> reidentify.Recogniser:
            recogniser = reidentify.Recogniser(self._network())
            recogniser.load_state_dict(artefacts.load(path, kind="recogniser")[0])
            return recogniser

        settings = {**self.recogniser(), "seed": seed}
        return self._models.once("recogniser", settings, make, read)

    def _adaptive(self, cell: Cell, shown: Callable[[Tensor, int, int], Tensor]) -> reidentify.Recogniser:
        """The static recogniser, trained further on photographs that are shown to it as the probes are.

        They are his own, so that he knows from the clean ones where the faces are.
        """
        start, config = self._static(cell.seed), self._config.adversary
        further = replace(config, steps=config.adaptive_steps)
        return self._trained(
            lambda number: self._cut(shown(self.others.images, OTHERS, number), self._others_places),
            cell.seed,
            further,
            copy.deepcopy(start.encoder),
        )

    def _trained(
        self,
        seen: Callable[[int], Tensor],
        seed: int,
        config: reidentify.AdversaryConfig,
        encoder: nn.Module,
    ) -> reidentify.Recogniser:
        identities = self.others.label(self._sensitive).codes
        return reidentify.train_recogniser(
            seen, identities, config, encoder=encoder, seed=seed, progress=self._progress
        )

    def _network(self) -> nn.Module:
        """The encoder that the adversary starts from."""
        config = self._config.adversary
        if config.weights is not None:
            return FACE_NETWORKS[config.recogniser][0].load(config.weights)
        with initial_weights(self._config.seeds[0]):
            return Conv4(self._data.images.shape[1])

    # Faces

    @property
    def _faces(self) -> bool:
        return self._config.adversary.recogniser in FACE_NETWORKS

    @cached_property
    def _finder(self) -> FaceFinder | None:
        detector = self._config.adversary.detector
        return None if detector is None else FaceFinder(MTCNN.load(detector), self.others.images[:_FRAMING])

    @cached_property
    def _people_places(self) -> Tensor | None:
        """Of clean photographs, once for all attacks."""
        return self._find(self._people.images)

    @cached_property
    def _others_places(self) -> Tensor | None:
        return self._find(self.others.images)

    def _find(self, images: Tensor) -> Tensor | None:
        return None if self._finder is None else self._finder.find(images).landmarks

    def _cut(self, images: Tensor, places: Tensor | None) -> Tensor:
        """What the recogniser is shown: whole images, or the faces at those places."""
        if places is None:
            return images
        return align(images, places, FACE_NETWORKS[self._config.adversary.recogniser][1])


def _verified(gallery: Tensor, names: Tensor, probes: Tensor, truth: Tensor) -> dict[str, float]:
    """How well one photograph of the gallery and one probe are told to show the same person or not."""
    step = max(1, len(gallery) * len(probes) // _PAIRS)
    probes, truth = probes[::step], truth[::step]
    cosines, same = (probes @ gallery.T).flatten(), (truth[:, None] == names).flatten()
    return {
        "verification_auc": recognition.area_under_curve(cosines, same),
        "tar_at_far_1e-3": recognition.true_accept_rate(cosines, same, false_accept_rate=1e-3),
    }


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: the weights cannot be read ({error.strerror})") from error
