"""The few-shot model: the input of its networks, its use, and its artefact."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import pydantic
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from sfumato import artefacts
from sfumato.base.hardware import autocast, device_of, resolve, to_device
from sfumato.errors import ConfigError
from sfumato.images import to_float, to_uint8
from sfumato.learn.conditions import Conditions
from sfumato.learn.few_shot.config import FewShotConfig
from sfumato.learn.method import Precision, Spec, describing, make_portable, protection_of
from sfumato.learn.refusal import Refusal
from sfumato.networks import DnCNN
from sfumato.networks.classifiers import make_encoder
from sfumato.networks.encoders.pretrained import PretrainedEncoder, check_card, is_pretrained
from sfumato.networks.onnx_network import OnnxNetwork
from sfumato.networks.weights import initial_weights, no_larger_than, take_weights
from sfumato.protect import Protection, enlarge
from sfumato.protect.parameters import cell_in_pixels
from sfumato.protect.release import cell_of

_KIND = "few-shot"
_EMBED_BATCH = 256


class FewShotModel(nn.Module):
    """An encoder, with a denoiser in front or without. State: their weights.

    Attributes:
        conditions: the protections of its training; if there are several, it gets that of each image.
        cell: the networks see means of square cells of this side.
        card: its settings, data digest, validation accuracy and privacy spent.
    """

    def __init__(
        self,
        encoder: nn.Module,
        denoiser: nn.Module | None,
        *,
        conditions: Conditions,
        cell: int,
        card: dict[str, Any],
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.denoiser = denoiser
        self.conditions = conditions
        self.cell = cell
        self.card = card
        # Measurably faster on a processor, the more so in bfloat16 (benchmarks/episode.py).
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def specs(self) -> tuple[str, ...]:
        """The protections of its training."""
        return tuple(protection.spec for protection in self.conditions.protections)

    def forward(self, protected: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Denoises and embeds. Mixed precision ends here: distances are differences of large numbers.

        Args:
            protected: (N, C, h, w) float32, released images as `prepare` makes them.
            positions: (N, K) float32, `conditions.position` of the protection of each.

        Returns:
            denoised (N, C, h, w) and embeddings (N, D), both float32.
        """
        images = protected.contiguous(memory_format=torch.channels_last)
        planes = positions[:, :, None, None].expand(-1, -1, *images.shape[2:])

        def with_planes(features: Tensor) -> Tensor:
            return torch.cat([features, planes], 1) if planes.shape[1] else features

        with autocast(self.card["precision"], images.device):
            denoised = images if self.denoiser is None else self.denoiser(with_planes(images))
            embeddings = self.encoder(with_planes(denoised))
        return denoised.float(), embeddings.float()

    def prepare(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> (N, C, h, w) float32, the means of cells that the networks see."""
        if self.cell == 1:
            return to_float(images)
        # Cells that the border cuts short are divided by the pixels they have.
        return functional.avg_pool2d(to_float(images), self.cell, ceil_mode=True, count_include_pad=False)

    def weight(self, protection: Protection) -> float:
        """The weight of a support image in a prototype by its protection; 1 is the mean over all of training.

        Measured on the validation images by `prototypes.support_weights`, for each protection of the
        training; for others, that of the nearest.

        Raises:
            ConfigError: nothing was measured, as for a model that `train` did not make.
        """
        if "weights" not in self.card:
            raise ConfigError(
                "the weights of support images were never measured: evaluate with weighted=False"
            )
        measured: float = self.card["weights"][self.conditions.nearest(protection).spec]
        return measured

    @torch.no_grad()
    def embed(self, released: Tensor, protection: Protection | None = None) -> Tensor:
        """(N, C, H, W) uint8 released images -> (N, D) float32 embeddings.

        Args:
            released: from `Release.images()`.
            protection: of these images; a model for several needs it. It uses the nearest of those: it has
                learned nothing about numbers between them, and embeds worse.
        """
        return self._infer(released, protection, lambda images, positions: self(images, positions)[1])

    @torch.no_grad()
    def fit_encoder(self, released: Tensor, codes: Tensor) -> None:
        """Standardises and whitens the outputs of an encoder that was trained before; others stay."""
        if not isinstance(self.encoder, PretrainedEncoder):
            return
        encoder = self.encoder.encoder

        def raw(images: Tensor, positions: Tensor) -> Tensor:
            return encoder.raw(images if self.denoiser is None else self(images, positions)[0])

        self.encoder.fit(self._infer(released, None, raw), codes)

    @torch.no_grad()
    def denoise(self, released: Tensor, protection: Protection | None = None) -> Tensor:
        """(N, C, H, W) uint8 released images -> uint8 denoised ones; unchanged without a denoiser.

        A denoiser of cells gives cells, each enlarged to its pixels. `protection`: see embed.
        """
        if self.denoiser is None:
            return released
        size = (released.shape[2], released.shape[3])
        return self._infer(
            released,
            protection,
            lambda images, positions: enlarge(
                to_uint8(self(images, positions)[0]).cpu(), cell=self.cell, size=size
            ),
        )

    def _infer(
        self, released: Tensor, protection: Protection | None, function: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        if protection is None:
            if len(self.specs) > 1:
                raise ConfigError(
                    f"this model serves {', '.join(self.specs)}: pass the protection that the images have"
                )
            protection = self.conditions.protections[0]
        self.eval()
        device = device_of(self)
        position = self.conditions.position(self.conditions.nearest(protection)).to(device)
        parts = []
        for part in released.split(_EMBED_BATCH):
            parts.append(
                function(self.prepare(to_device(part, device)), position.expand(len(part), -1)).cpu()
            )
        return torch.cat(parts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as an artefact."""
        card = {"kind": _KIND, "cell": self.cell, **make_portable(self.card)}
        artefacts.save(path, self.state_dict(), card)


class _Card(artefacts.Card):
    config: FewShotConfig
    specs: Annotated[list[Spec], Field(min_length=1, max_length=1024)]
    channels: artefacts.Channels
    precision: Precision
    cell: artefacts.Side
    shape: artefacts.ImageShape | None = None
    weights: dict[artefacts.Name, Annotated[float, Field(gt=0)]] | None = None
    made_of: list[artefacts.Sha256 | None] | None = None
    refusal: Refusal | None = None

    @pydantic.model_validator(mode="after")
    def _parts_fit(self) -> "_Card":
        if self.weights is not None and set(self.weights) != set(self.specs):
            raise ValueError("weights: one of each of its specs is needed")
        if self.made_of is not None and len(self.made_of) != len(self.specs):
            raise ValueError("made_of: one for each of its specs is needed")
        if self.shape is not None and self.shape[0] != self.channels:
            raise ValueError(f"shape: of {self.shape[0]} channels, and channels is {self.channels}")
        check_card(self.config.encoder)
        if self.config.denoiser_width < 1:
            raise ValueError(f"config.denoiser_width={self.config.denoiser_width}: at least 1")
        if self.shape is not None and self.config.denoiser_depth is not None:
            artefacts.check_map(self.config.denoiser_width, self.shape, self.cell)
        return self


def load(path: str | os.PathLike[str], *, encoder: nn.Module | None = None) -> FewShotModel:
    """Reads a model that `FewShotModel.save` wrote.

    `encoder`: a module of the same architecture, for a model that was trained with the user's own. Raises
    ArtefactError: damaged, foreign, or the weights do not fit the encoder.
    """
    tensors, card = artefacts.load(path, kind=_KIND, schema=_Card)
    cell = card.pop("cell")
    digests = card.get("made_of") or [None] * len(card["specs"])
    with describing(path, _KIND), no_larger_than(tensors):
        settings = dict(card["config"])
        if settings.get("widths") is not None:
            settings["widths"] = tuple(settings["widths"])  # JSON has lists
        config = replace(FewShotConfig(**settings), cell=cell)
        protections = [
            protection_of(spec, digest, path) for spec, digest in zip(card["specs"], digests, strict=True)
        ]
        if card.get("weights"):
            saved = zip(protections, card["specs"], strict=True)
            card["weights"] = {protection.spec: card["weights"][spec] for protection, spec in saved}
        card["specs"] = [protection.spec for protection in protections]
        model = make_untrained(card["channels"], config, protections, encoder=encoder, card=card)
    cure = "pass the encoder module that it was trained with" if encoder is None else "another architecture"
    take_weights(model, tensors, path, cure=f" ({cure})")
    return model


@torch.no_grad()
def operations(model: FewShotModel, shape: Sequence[int]) -> int | None:
    """The multiply-adds of the networks for one (C, H, W) image, in convolutions and linear layers.

    None for a graph of ONNX, whose operations are not counted.
    """
    model.eval()
    if any(isinstance(part, OnnxNetwork) for part in model.modules()):
        return None
    image = torch.zeros(1, *shape, dtype=torch.uint8)
    counter = FlopCounterMode(display=False)
    with counter:
        model.embed(image, model.conditions.protections[0])
    return counter.get_total_flops() // 2


def make_untrained(
    channels: int,
    config: FewShotConfig,
    protections: Sequence[Protection],
    *,
    encoder: nn.Module | None = None,
    card: dict[str, Any] | None = None,
    seed: int = 0,
    size: tuple[int, int] | None = None,
) -> FewShotModel:
    """Makes the model of `config` for some protections, with initial weights from `seed`.

    If all images have one size, (H, W), cells that are shares of them are in pixels of that size.
    """
    conditions = Conditions(protections)
    cell = config.cell
    if cell is None:
        # Shares of an image have no common divisor if its size is not known.
        known = encoder is None and (size or all(isinstance(cell_of(each), int) for each in protections))
        cell = math.gcd(*(cell_in_pixels(each, *(size or (1, 1))) for each in protections)) if known else 1
    planes = len(conditions.keys)
    if planes and encoder is None and is_pretrained(config.encoder):
        raise ConfigError(
            f"{len(conditions.protections)} protections: an encoder that was trained before cannot know "
            "which of them an image has: train a model for each, or an encoder of sfumato's own"
        )
    with initial_weights(seed):
        if encoder is None:
            # The last maps are as large as they would be at full resolution.
            pools = max(0, 4 - round(math.log2(cell)))
            encoder = make_encoder(config.encoder, channels + planes, pools=pools, widths=config.widths)
        denoiser = None
        if config.denoiser_depth is not None:
            denoiser = DnCNN(
                channels, depth=config.denoiser_depth, width=config.denoiser_width, planes=planes
            )
    card = card or {"precision": resolve(config.precision)}
    return FewShotModel(encoder, denoiser, conditions=conditions, cell=cell, card=card)
