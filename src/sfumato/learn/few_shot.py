"""FS-PIC: few-shot classification of protected images, by prototypes behind an optional denoiser.

Source: Parnami et al. 2022, Sec. IV, Algorithm 1. The three models compared there are
`train(..., Clear())` tested on protected images, `train` with `denoiser_depth=None`, and `train` with a
denoiser. The paper writes the Euclidean distance; we use its square, as Snell et al. 2017 do.

Beyond the paper: `cell` and `pretraining_epochs`, see FewShotConfig.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pydantic
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from sfumato import artefacts
from sfumato.base.hardware import autocast, resolve, to_device
from sfumato.data.labelled import LabelledImages, split_by_class
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler, Shape, seed_of
from sfumato.errors import ConfigError
from sfumato.images import to_float, to_uint8
from sfumato.learn import method
from sfumato.learn.augmentation import augment
from sfumato.learn.fit import Progress, Run, adam, fit
from sfumato.learn.gallery import answers_of_episodes, measure_refusal
from sfumato.learn.prototypes import Accuracy, episode_accuracies, prototypical_loss
from sfumato.learn.refusal import Refusal
from sfumato.learn.start import START_FIELD, begin
from sfumato.networks import DnCNN
from sfumato.networks.classifiers import ENCODERS, check_network, check_widths, make_encoder
from sfumato.networks.encoders.pretrained import PretrainedEncoder, check_card, on_card
from sfumato.networks.onnx_network import OnnxNetwork
from sfumato.networks.weights import initial_weights
from sfumato.protect import Protection, enlarge
from sfumato.protect.parameters import cell_in_pixels
from sfumato.protect.release import artefact_of, cell_of

# Clean and released (B, C, H, W) uint8 images of an episode; in pretraining also the (B,) classes of as many.
Batch = tuple[Tensor, Tensor, Tensor | None]


@dataclass(frozen=True, kw_only=True)
class FewShotConfig(method.Episodic):
    """The settings of training a few-shot model; for those that are not here see learn.method.

    The defaults are the paper's for CelebA, with Conv-4. Images are varied before they are protected, by
    flips for photographs, not for characters.

    Attributes:
        within: a label whose value the classes of an episode share, in training and in validation, such as
            "alphabet": they are harder to distinguish. None: any classes.
        episodes_per_step: a step of Adam follows the mean gradient of this many, each of which batch norm
            sees by itself; one in the paper. They divide `episodes_per_epoch`.
        encoder: "conv4" or "resnet12"; or one that was trained before, see networks.pretrained, which is
            frozen unless its `rate` is set. Ignored if `train` is given a module.
        widths: of the four blocks of "resnet12"; None for those of the paper, 64, 128, 256 and 512. Half of
            each is a quarter of the operations.
        cell: the networks see an image as the means of square cells of this side; 1 for every pixel,
            as in the paper. None: as the protection releases it, at a fraction of the operations.
        pretraining_epochs: the first epochs, in which the encoder learns to classify all training classes by
            a linear layer, which is then removed: for large encoders. Batches are as large as an episode.
    """

    way: int = 5
    shot: int = 5
    queries: int = 5
    epochs: int = 200
    episodes_per_epoch: int = 100
    episodes_per_step: int = 1
    patience: int = 20
    validation_way: int = 5
    validation_shot: int = 5
    validation_queries: int = 5
    validation_episodes: int = 200
    learning_rate: float = 1e-3
    halve_every: int = 20
    encoder: str = "conv4"
    start: str = field(default="drawn", metadata=START_FIELD)
    denoiser_depth: int | None = 8  # layers of the DnCNN in front, 8 in the paper; None for no denoiser
    denoiser_width: int = 64  # its filters, 64 in the paper
    cell: int | None = None
    pretraining_epochs: int = 0
    flips: bool = False
    shifts: int = 0
    warps: float = 0.0
    precision: str = "auto"
    widths: tuple[int, ...] | None = None
    within: str | None = None

    def __post_init__(self) -> None:
        check_network(self.encoder, ENCODERS, what="encoder")
        check_widths(self.encoder, self.widths)
        least = {"epochs": 1, "episodes_per_epoch": 1, "patience": 1, "halve_every": 1, "shifts": 0}
        method.check_least(
            self, **least, episodes_per_step=1, validation_episodes=1, denoiser_depth=2, cell=1
        )
        if self.episodes_per_epoch % self.episodes_per_step:
            raise ConfigError(
                f"episodes_per_step={self.episodes_per_step}: a divisor of "
                f"episodes_per_epoch={self.episodes_per_epoch}"
            )
        if not 0 <= self.warps < 0.5:
            raise ConfigError(f"warps={self.warps:g}: from 0, which changes nothing, to below 0.5")
        if not 0 <= self.pretraining_epochs <= self.epochs:
            raise ConfigError(f"pretraining_epochs={self.pretraining_epochs}: from 0 to epochs={self.epochs}")


# Parnami et al. 2022, Table II.
FS_PIC_OMNIGLOT = FewShotConfig(way=60, shot=5, queries=5, epochs=500, patience=50)
FS_PIC_CELEBA = FewShotConfig(way=5, shot=5, queries=5, epochs=200, patience=20)
FS_PIC_MINIIMAGENET = FewShotConfig(way=5, shot=5, queries=15, epochs=200, patience=20)


class FewShotModel(method.Model):
    """An encoder, with a denoiser in front or without."""

    kind = "few-shot"
    protection: Protection  # of its training
    cell: int  # the side in pixels of the squares whose means the networks see
    encoder: nn.Module
    denoiser: nn.Module | None

    def forward(self, protected: Tensor) -> tuple[Tensor, Tensor]:
        """(N, C, h, w) float32, as `prepare` makes it -> the same denoised, and (N, D) embeddings.

        Mixed precision ends here: distances are differences of large numbers.
        """
        images = protected.contiguous(memory_format=torch.channels_last)
        with autocast(self.card["precision"], images.device):
            denoised = images if self.denoiser is None else self.denoiser(images)
            embeddings = self.encoder(denoised)
        return denoised.float(), embeddings.float()

    def prepare(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> (N, C, h, w) float32, the means of cells that the networks see."""
        if self.cell == 1:
            return to_float(images)
        # Cells that the border cuts short are divided by the pixels they have.
        return functional.avg_pool2d(to_float(images), self.cell, ceil_mode=True, count_include_pad=False)

    def encode(self, released: Tensor) -> Tensor:
        """(N, C, H, W) uint8 images, from `Release.images()` -> (N, D) float32 embeddings."""
        return self.infer(lambda images: self(self.prepare(images))[1], released)

    def denoise(self, released: Tensor) -> Tensor:
        """(N, C, H, W) uint8 releases -> uint8 denoised images, by cells; unchanged without a denoiser."""
        if self.denoiser is None:
            return released
        _, _, height, width = released.shape
        cells = self.infer(lambda images: to_uint8(self(self.prepare(images))[0]), released.cpu())
        return enlarge(cells, cell=self.cell, size=(height, width))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as an artefact."""
        card = {"kind": self.kind, "cell": self.cell, **method.make_portable(self.card)}
        artefacts.save(path, self.state_dict(), card)


class _Card(artefacts.Card):
    config: FewShotConfig
    spec: method.Spec
    channels: artefacts.Channels
    precision: method.Precision
    cell: artefacts.Side
    shape: artefacts.ImageShape | None = None
    made_of: artefacts.Sha256 | None = None
    refusal: Refusal | None = None

    @pydantic.model_validator(mode="after")
    def _parts_fit(self) -> "_Card":
        if self.shape is not None and self.shape[0] != self.channels:
            raise ValueError(f"shape: of {self.shape[0]} channels, and channels is {self.channels}")
        check_card(self.config.encoder)
        if self.config.denoiser_width < 1:
            raise ValueError(f"config.denoiser_width={self.config.denoiser_width}: at least 1")
        if self.shape is not None and self.config.denoiser_depth is not None:
            artefacts.check_map(self.config.denoiser_width, self.shape, self.cell)
        return self


def load(path: str | os.PathLike[str], *, encoder: nn.Module | None = None) -> FewShotModel:
    """Reads a saved model. Raises ArtefactError: damaged, foreign, or the weights do not fit the encoder.

    `encoder`: a module of the same architecture, for a model that was trained with the user's own.
    """

    def make(card: dict[str, Any]) -> FewShotModel:
        config = FewShotConfig(**card["config"] | {"cell": card.pop("cell")})
        protection = method.protection_of(card["spec"], card.get("made_of"), path)
        card["spec"] = protection.spec
        return make_untrained(card["channels"], config, protection, encoder=encoder, card=card)

    cure = "pass the encoder module that it was trained with" if encoder is None else "another architecture"
    return method.load_model(path, kind=FewShotModel.kind, schema=_Card, untrained=make, cure=f" ({cure})")


def operations(model: FewShotModel, shape: Sequence[int]) -> int | None:
    """The multiply-adds for one (C, H, W) image, in convolutions and linear layers; None for ONNX graphs."""
    if any(isinstance(part, OnnxNetwork) for part in model.modules()):
        return None
    with FlopCounterMode(display=False) as counter:
        model.encode(torch.zeros(1, *shape, dtype=torch.uint8))
    return int(counter.get_total_flops() // 2)


def make_untrained(
    channels: int,
    config: FewShotConfig,
    protection: Protection,
    *,
    encoder: nn.Module | None = None,
    card: dict[str, Any] | None = None,
    seed: int = 0,
    size: tuple[int, int] | None = None,
) -> FewShotModel:
    """Makes the model of `config` for a protection, for images of a size, with weights from `seed`."""
    cell, depth = config.cell, config.denoiser_depth
    if cell is None:
        # A share of an image is of unknown pixels if its size is not known.
        known = encoder is None and (size or isinstance(cell_of(protection), int))
        cell = cell_in_pixels(protection, *(size or (1, 1))) if known else 1
    with initial_weights(seed):
        if encoder is None:
            # The last maps are as large as they would be at full resolution.
            pools = max(0, 4 - round(math.log2(cell)))
            encoder = make_encoder(config.encoder, channels, pools=pools, widths=config.widths)
        denoiser = None if depth is None else DnCNN(channels, depth=depth, width=config.denoiser_width)
    model = FewShotModel(card or {"precision": resolve(config.precision)}, encoder=encoder, denoiser=denoiser)
    model.protection, model.cell = protection, cell
    return model


def train(
    data: LabelledImages,
    protection: Protection,
    config: FewShotConfig,
    *,
    target: str = "class",
    validation: LabelledImages | None = None,
    encoder: nn.Module | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    device: torch.device | None = None,
) -> FewShotModel:
    """Trains by Algorithm 1 and returns the model of the epoch with the best validation accuracy.

    Every image is protected anew in every episode, by seeded noise: these copies stay with the trainer; with
    `Clear()` the model is the clean-trained baseline. `validation` is of other classes; None holds back 15%
    of them. `encoder` is any module from (N, C, H, W) float images to (N, D), which is trained in place and
    sees every pixel unless config.cell is set; None for the one that config names. See also learn.method.

    Raises DataError: too few classes or images for an episode, or no label `config.within`.
    """
    if validation is None:  # other classes
        parts = split_by_class(data.label(target).codes, shares=(0.85, 0.15, 0.0), seed=seed)
        data, validation = data.rows(parts["train"]), data.rows(parts["validation"])
    sampler = _sampler(data, target, config, config.episode)
    channels, height, width = data.images.shape[1:]
    own = {"spec": protection.spec, "channels": channels, "target": target}
    card = method.training_card(data, config, seed=seed, device=device, **own)
    card["config"]["encoder"] = on_card(config.encoder)
    card["encoder"] = on_card(config.encoder) if encoder is None else type(encoder).__name__
    more: dict[str, Any] = {"card": card, "seed": seed, "size": (height, width)}
    model = make_untrained(channels, config, protection, encoder=encoder, **more)
    if encoder is None:
        card["start"] = begin(model.encoder, config.start)
    model.to(device)
    classes, codes = data.label(target).codes.unique(return_inverse=True)
    # One fixed set of validation episodes, of images protected once each.
    judged, order = config.validation_episode, torch.Generator().manual_seed(seed)
    drawn = _sampler(validation, target, config, judged).draw(config.validation_episodes, order)
    rows, places = drawn.unique(return_inverse=True)
    # The last number separates this noise from that of every epoch.
    asked = protection.release(validation.images[rows], seeded_noise(seed, config.epochs)).images()

    def judge() -> float:
        return episode_accuracies(model.encode(asked), places, shot=judged.shot).mean().item()

    def fit_encoder() -> None:
        """Standardises and whitens the outputs of an encoder that was trained before; others stay."""
        if not isinstance(trained := model.encoder, PretrainedEncoder):
            return

        def raw(images: Tensor) -> Tensor:
            ready = model.prepare(images)
            return trained.encoder.raw(ready if model.denoiser is None else model(ready)[0])

        trained.fit(model.infer(raw, protection.release(data.images, seeded_noise(seed, 0)).images()), codes)

    fit_encoder()
    if any(parameter.requires_grad for parameter in model.parameters()):
        size = model.encode(data.images[:1]).shape[1] if config.pretraining_epochs else 0
        run, step = make_step(model, config, outputs=(len(classes), size), device=device)

        def batches(epoch: int) -> Iterator[list[Batch]]:
            """The episodes, or pretraining batches, of each step of an epoch, protected anew."""
            run.set_rate(config.rate_at(epoch))
            order, noise = torch.Generator().manual_seed(seed_of(seed, epoch)), seeded_noise(seed, epoch)
            pretraining = epoch < config.pretraining_epochs
            moved: dict[str, Any] = {"flips": config.flips, "shifts": config.shifts, "warps": config.warps}

            def batch(rows: Tensor) -> Batch:
                images = augment(data.images[rows], order, **moved)
                released = protection.release(images, noise).images()
                return images, released, codes[rows] if pretraining else None

            if pretraining:
                size = config.way * (config.shot + config.queries)
                drawn = torch.randint(len(data), (config.episodes_per_epoch, size), generator=order)
            else:
                drawn = sampler.draw(config.episodes_per_epoch, order).flatten(1)  # (E, N * (K + Q))
            parts = drawn.split(config.episodes_per_step)
            with ThreadPoolExecutor(1) as pool:  # which keeps noise off the thread that feeds an accelerator
                each = map if run.device.type == "cpu" else pool.map
                yield from each(lambda step: [batch(rows) for rows in step], parts)

        def episodes(done: int, planned: int) -> None:
            if progress is not None:
                progress(done * config.episodes_per_step, planned * config.episodes_per_step)

        more = {"checkpoint": checkpoint, "progress": episodes, "patience": config.patience}
        more["patient_from"] = config.pretraining_epochs
        steps = config.episodes_per_epoch // config.episodes_per_step
        fit(run, batches, step, epochs=config.epochs, steps=steps, judge=judge, **more)
        card |= {**run.outcome, "curve": run.curve}
        if isinstance(model.encoder, PretrainedEncoder) and not model.encoder.encoder.rate:
            fit_encoder()  # to the denoised images
    else:  # every learning part was computed in closed form
        card |= {"epochs": 0, "validation_accuracy": judge()}
    known = validation.label(target).codes[rows].numpy()
    refusal, reason = measure_refusal(model.encode(asked).numpy(), known, way=judged.way, shot=judged.shot)
    card |= {"refusal": None if refusal is None else refusal.card(), "no_refusal": reason}
    card["made_of"] = artefact_of(protection)
    return model


def make_step(
    model: FewShotModel,
    config: FewShotConfig,
    *,
    outputs: tuple[int, int] = (0, 0),
    device: torch.device | None = None,
) -> tuple[Run, Callable[[Sequence[Batch]], Tensor]]:
    """The run, with a layer of `outputs` for pretraining, and its step on the mean loss of batches."""
    layers = nn.ParameterDict({"classifier": torch.zeros(outputs)} if all(outputs) else {})
    about: dict[str, Any] = {"kind": "few-shot checkpoint", "identity": {"cell": model.cell, **model.card}}
    run = Run(model, adam(config.learning_rate), **about, beside=layers, device=device)

    def loss_of(batch: Batch) -> Tensor:
        clean, released = (to_device(part, run.device) for part in batch[:2])
        if batch[2] is None:
            return fs_pic_loss(model, clean, released, config.episode)
        denoised, embeddings = model(model.prepare(released))
        logits = embeddings @ layers["classifier"].T
        loss = functional.cross_entropy(logits, to_device(batch[2], run.device), label_smoothing=0.1)
        return loss + _denoising_loss(model, denoised, clean)

    def step(batches: Sequence[Batch]) -> Tensor:
        mean = torch.zeros((), device=run.device)
        for batch in batches:
            loss = loss_of(batch) / len(batches)
            loss.backward()
            mean += loss.detach()
        return run.update(mean)

    return run, step


def fs_pic_loss(model: FewShotModel, clean: Tensor, released: Tensor, shape: Shape) -> Tensor:
    """The joint loss of one episode: denoising loss + mean negative log-likelihood of the queries.

    Source: Parnami et al. 2022, Eq. (7), on values in [0, 1]. The denoising loss is Eq. (6): half the
    squared error of an image, SUMMED over its values, mean over images. Algorithm 1 there writes MSE; with
    a mean over the values the weight is so small that the denoiser serves only the classifier, and its
    output is less like the original than its input.

    `clean`, `released`: (N * (K + Q), C, H, W) uint8, class by class, support before queries.
    """
    denoised, embeddings = model(model.prepare(released))
    return prototypical_loss(embeddings, shape) + _denoising_loss(model, denoised, clean)


def _denoising_loss(model: FewShotModel, denoised: Tensor, clean: Tensor) -> Tensor:
    """Half the squared error of an image, summed over its values, mean over images; 0 without a denoiser."""
    if model.denoiser is None:
        return denoised.new_zeros(())
    return (denoised - model.prepare(clean)).square().flatten(1).sum(1).mean() / 2


def _sampler(data: LabelledImages, target: str, config: FewShotConfig, shape: Shape) -> Sampler:
    return Sampler(data.label(target), shape, None if config.within is None else data.label(config.within))


def evaluate(
    model: FewShotModel,
    data: LabelledImages,
    *,
    way: int,
    shot: int,
    queries: int = 15,
    episodes: int = 600,
    target: str = "class",
    protection: Protection | None = None,
    seed: int = 0,
) -> Accuracy:
    """Mean accuracy over test episodes of clean images of new classes, each protected once.

    `protection` is None for that of the training. The episodes of a seed do not depend on the model or the
    protection, so models are compared on the same ones. Raises DataError: too few for an episode.
    """
    protection, shape = protection or model.protection, Shape(way=way, shot=shot, queries=queries)
    drawn = Sampler(data.label(target), shape).draw(episodes, torch.Generator().manual_seed(seed))
    drawn, rows = drawn.unique(return_inverse=True)
    embeddings = model.encode(protection.release(data.images[drawn], seeded_noise(seed)).images())
    refusal = Refusal.of_card(model.card.get("refusal"))
    answers = answers_of_episodes(embeddings.numpy(), rows.numpy(), shot=shot, refusal=refusal)
    return Accuracy.of_answers(answers, drawn[rows][:, :, shot:], shape, protection.spec)
