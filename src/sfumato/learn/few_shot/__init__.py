"""FS-PIC: few-shot classification of protected images, by prototypes behind an optional denoiser.

Source: Parnami et al. 2022, Sec. IV, Algorithm 1. The three models compared there are
`train(..., Clear())` tested on protected images, `train` with `denoiser_depth=None`, and `train` with a
denoiser. The paper writes the Euclidean distance; we use its square, as Snell et al. 2017 do.

Beyond the paper: releases with one value for each cell of pixels are denoised and embedded as these
values (`cell`); an encoder may be trained to classify before it is trained on episodes
(`pretraining_epochs`); and one model may serve a range of protections (`train` with several of them): it gets
their parameters, and weighs support images by them.
"""

from sfumato.learn.few_shot.config import (
    FS_PIC_CELEBA,
    FS_PIC_MINIIMAGENET,
    FS_PIC_OMNIGLOT,
    FewShotConfig,
)
from sfumato.learn.few_shot.model import FewShotModel, load, make_untrained, operations
from sfumato.learn.few_shot.testing import Accuracy, evaluate
from sfumato.learn.few_shot.training import Batch, Training, fs_pic_loss, train

__all__ = [
    "FS_PIC_CELEBA",
    "FS_PIC_MINIIMAGENET",
    "FS_PIC_OMNIGLOT",
    "Accuracy",
    "Batch",
    "FewShotConfig",
    "FewShotModel",
    "Training",
    "evaluate",
    "fs_pic_loss",
    "load",
    "make_untrained",
    "operations",
    "train",
]
