"""The model of a mask: a masker and the classifier that was trained with it, and their artefact."""

import os
from typing import Any

import torch
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.base.hardware import autocast, device_of
from sfumato.data.labelled import LabelledImages
from sfumato.images import check_batch
from sfumato.learn.adversarial_mask.config import MaskConfig
from sfumato.learn.method import Names, Precision, as_input, check_shape, codes_of, load_model
from sfumato.networks import Predictor, UNet
from sfumato.networks.weights import initial_weights
from sfumato.protect.mask import KIND, MaskCard, make_masker, pixel_scores, pixels_shown, reveal

_BATCH = 256


class MaskModel(nn.Module):
    """A masker, and the classifier that was trained with it. State: their weights."""

    def __init__(self, masker: UNet, predictor: Predictor, *, card: dict[str, Any]) -> None:
        super().__init__()
        self.masker = masker
        self.predictor = predictor
        self.card = card
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def keep(self) -> float:
        """The share of pixels of its training."""
        return float(self.card["config"]["keep"])

    @property
    def classes(self) -> tuple[str, ...]:
        """The names that the predictor chooses among."""
        return tuple(self.card["classes"])

    def scores(self, images: Tensor) -> Tensor:
        """The soft mask. (N, C, H, W) uint8 -> (N, 1, H, W) float32 in [0, 1]; see protect.mask.

        Raises DataError for images of another size than in training.
        """
        check_batch(images)
        check_shape(images, self.card["shape"], "mask")
        self.eval()
        return pixel_scores(self.masker, images.to(device_of(self))).to(images.device)

    def mask_images(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> the image that a device would send: `keep` of the pixels, the others 0.

        A mask for soft values gives the products with the scores; one for its shape gives 255 for each
        shown pixel.
        """
        count = pixels_shown(self.keep, (images.shape[2], images.shape[3]))
        values, shown = reveal(images, self.scores(images), count=count, soft=self.sends == "soft")
        return shown.expand_as(images).byte() * 255 if self.sends == "shape" else values

    @property
    def sends(self) -> str:
        """The `values` of the releases of its training: see MaskConfig."""
        return str(self.card["config"]["values"])

    @torch.no_grad()
    def classify(self, released: Tensor) -> Tensor:
        """(N, C, H, W) uint8 masked images -> (N,) int64, indices of `classes`."""
        self.eval()
        parts = []
        device = device_of(self)
        for part in released.split(_BATCH):
            with autocast(self.card["precision"], device):
                logits = self.predictor(as_input(part, device))
            parts.append(logits.float().argmax(1))
        return torch.cat(parts).to(released.device)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as an artefact for `protect.parse("mask:artefact=PATH")`."""
        artefacts.save(path, self.state_dict(), {"kind": KIND, **self.card})


class _Card(MaskCard):
    """The card of both networks: the device side needs less."""

    config: MaskConfig  # type: ignore[assignment]
    classes: Names
    precision: Precision


def load(path: str | os.PathLike[str]) -> MaskModel:
    """Reads a model that `MaskModel.save` wrote. Raises ArtefactError: damaged, foreign, of another kind."""
    return load_model(
        path,
        kind=KIND,
        schema=_Card,
        untrained=lambda card: make_untrained(card, MaskConfig(**card["config"]), seed=0),
    )


def evaluate(model: MaskModel, data: LabelledImages) -> float:
    """The share of images that the predictor names by the pixels that a device would show.

    Raises:
        DataError: images of another size, or of unknown classes.
    """
    codes = codes_of(data, model.card["target"], model.classes, "mask")
    return (model.classify(model.mask_images(data.images)) == codes).double().mean().item()


def make_untrained(card: dict[str, Any], config: MaskConfig, *, seed: int) -> MaskModel:
    """Makes the model of a card's `shape` and `classes`, with initial weights from `seed`."""
    channels, height, width = card["shape"]
    with initial_weights(seed):
        masker = make_masker(channels, width=config.masker_width, levels=config.levels)
        predictor = Predictor((channels, height, width), len(card["classes"]))
    return MaskModel(masker, predictor, card=card)
