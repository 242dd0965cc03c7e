"""The subject of the audit: an update, the auditor's knowledge, and the effort."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sfumato.attack import label_inference
from sfumato.attack.gradient_inversion import INVERTING_GRADIENTS, InversionConfig
from sfumato.attack.updates import Update, undo_decay
from sfumato.audits.models import check_takes
from sfumato.errors import ConfigError, DataError

_STAND_INS = 256  # images for label inference
USUAL_SEARCH = replace(INVERTING_GRADIENTS, steps=1000, total_variation=1e-2)  # for images of 32x32


@dataclass(frozen=True, kw_only=True)
class UpdateAuditConfig:
    """The effort of the audit.

    Attributes:
        search: for images, a published one or your own; None: no search.
        draws: of SPEAR.
        seed: of the search and the draws.
    """

    search: InversionConfig | None = USUAL_SEARCH
    draws: int = 200_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ConfigError(f"draws={self.draws}: at least 1")


@dataclass(frozen=True)
class Truth:
    """The auditor's knowledge, which the adversary lacks; it only judges the report.

    Attributes:
        images: (N, C, H, W) float in [0, 1]; None: unknown.
        labels: (N,) int64; None: unknown.
    """

    images: Tensor | None = None
    labels: Tensor | None = None


@dataclass(frozen=True)
class Case:
    """The shared input of the audit's parts: `make_case` fits the update, and undoes the decay of weights.

    `sent` is the update before that; `decay` that of L2 and of L1, by step, in units of the gradient.
    """

    model: nn.Module
    update: Update
    shape: tuple[int, int, int]
    truth: Truth
    config: UpdateAuditConfig
    progress: Callable[[int, int], None] | None
    sent: Update
    decay: tuple[float, float]


NOTHING_KNOWN, USUAL = Truth(), UpdateAuditConfig()


def make_case(
    model: nn.Module,
    update: Update,
    shape: tuple[int, int, int],
    truth: Truth = NOTHING_KNOWN,
    config: UpdateAuditConfig = USUAL,
    progress: Callable[[int, int], None] | None = None,
) -> Case:
    """Check that a model, an update and known labels belong together, and read the update as a server does.

    Raises:
        ConfigError: the model does not take images of this shape, or gives no logits.
        DataError: the update is of another model, or the labels are not those of its images.
    """
    classes = check_takes(model, shape)
    fitted, sent = update.fit(model)
    labels, images = truth.labels, sent.training.images
    if labels is not None and (len(labels) != images or not 0 <= labels.min() <= labels.max() < classes):
        raise DataError(
            f"the labels are {', '.join(map(str, labels.tolist()))}: the update is of {images} images, and "
            f"the model has the classes 0 to {classes - 1}: give one for each image"
        )
    undone, (squares, sizes) = undo_decay(fitted, sent)
    steps = sent.training.rate * sent.training.steps
    return Case(fitted, undone, shape, truth, config, progress, sent, (squares / steps, sizes / steps))


def label_counts(case: Case) -> Tensor:
    """Infer the (classes,) int64 numbers of images by class. Raises as label_inference.counts."""
    training = case.update.training
    return label_inference.counts(
        case.model,
        {name: each / training.rate for name, each in case.update.change.items()},
        training.images,
        label_inference.stand_ins(case.shape, _STAND_INS, torch.Generator().manual_seed(case.config.seed)),
        local_steps=training.steps,
        change=case.update.change,
    )
