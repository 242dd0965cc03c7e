"""The settings of training a few-shot model, and those of the paper."""

import math
from dataclasses import dataclass, field

from sfumato.base.hardware import resolve
from sfumato.episodes import Shape
from sfumato.errors import ConfigError
from sfumato.learn.start import START_FIELD, check_start
from sfumato.networks.classifiers import ENCODERS, check_network, check_widths


@dataclass(frozen=True, kw_only=True)
class FewShotConfig:
    """The settings of training a few-shot model; the defaults are the paper's for CelebA, with Conv-4.

    Attributes:
        way, shot, queries: N, K and Q of a training episode.
        within: a label whose value the classes of an episode share, in training and in validation, such as
            "alphabet": they are harder to distinguish. None: any classes.
        epochs: at most; `episodes_per_epoch` episodes each.
        episodes_per_step: a step of Adam follows the mean gradient of this many, each of which batch norm
            sees by itself; one in the paper. They divide `episodes_per_epoch`.
        patience: epochs of episodes without a better validation accuracy before training stops.
        validation_way, validation_shot, validation_queries, validation_episodes: of its measurement.
        learning_rate: of Adam; halved every `halve_every` epochs.
        encoder: "conv4" or "resnet12"; or one that was trained before, see networks.pretrained, which is
            frozen unless its `rate` is set. Ignored if `train` is given a module.
        widths: of the four blocks of "resnet12"; None for those of the paper, 64, 128, 256 and 512. Half of
            each is a quarter of the operations.
        start: the initial weights of a Conv-4: "drawn", of an encoder that the library ships, which has
            learned from drawn worlds, see learn.start; or "random", as in the paper.
        denoiser_depth: layers of the DnCNN in front, 8 in the paper; None for no denoiser.
        denoiser_width: its filters, 64 in the paper.
        cell: the networks see an image as the means of square cells of this side; 1 for every pixel,
            as in the paper. None: as the protection releases it, which holds no more than these values, at a
            fraction of the operations (docs/results.md). A denoiser then has nothing to remove from pixelized
            images, whose cells have no noise.
        pretraining_epochs: the first epochs, in which the encoder learns to classify all training classes by
            a linear layer, which is then removed: for large encoders. Batches are as large as an episode,
            and as many a step.
        flips: whether every other training image is mirrored left to right, by chance, before it is
            protected: for photographs, not for characters.
        shifts: the most pixels that every training image is moved by, up or down and left or right, before
            it is protected; its edges are repeated.
        warps: the most that every training image is turned, scaled and sheared, before it is protected: the
            number added to each entry of the identity, 2 x 2, such as 0.2. Below 0.5, at which no image is
            turned over.
        precision: see `sfumato.base.hardware`.
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
    denoiser_depth: int | None = 8
    denoiser_width: int = 64
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
        check_start(self.start)
        resolve(self.precision)
        if self.denoiser_depth is not None and self.denoiser_depth < 2:
            raise ConfigError(
                f"denoiser_depth={self.denoiser_depth}: at least 2 layers, or None for no denoiser"
            )
        for name in ("epochs", "episodes_per_epoch", "patience", "halve_every", "validation_episodes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if self.episodes_per_step < 1 or self.episodes_per_epoch % self.episodes_per_step:
            raise ConfigError(
                f"episodes_per_step={self.episodes_per_step}: at least 1, and a divisor of "
                f"episodes_per_epoch={self.episodes_per_epoch}"
            )
        if self.cell is not None and self.cell < 1:
            raise ConfigError(f"cell={self.cell}: at least 1, for every pixel, or null for the protection's")
        if self.shifts < 0:
            raise ConfigError(f"shifts={self.shifts}: at least 0 pixels")
        if not 0 <= self.warps < 0.5:
            raise ConfigError(f"warps={self.warps:g}: from 0, which changes nothing, to below 0.5")
        if not 0 <= self.pretraining_epochs <= self.epochs:
            raise ConfigError(f"pretraining_epochs={self.pretraining_epochs}: from 0 to epochs={self.epochs}")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate:g}: above 0 (the paper uses 0.001)")
        for shape in ("episode", "validation_episode"):
            getattr(self, shape)  # checks way, shot and queries

    @property
    def episode(self) -> Shape:
        """The shape of a training episode."""
        return Shape(way=self.way, shot=self.shot, queries=self.queries)

    @property
    def validation_episode(self) -> Shape:
        """The shape of a validation episode."""
        return Shape(way=self.validation_way, shot=self.validation_shot, queries=self.validation_queries)


# Parnami et al. 2022, Table II.
FS_PIC_OMNIGLOT = FewShotConfig(way=60, shot=5, queries=5, epochs=500, patience=50)
FS_PIC_CELEBA = FewShotConfig(way=5, shot=5, queries=5, epochs=200, patience=20)
FS_PIC_MINIIMAGENET = FewShotConfig(way=5, shot=5, queries=15, epochs=200, patience=20)
